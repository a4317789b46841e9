//! RFC 6901 pointers, merged into a tree that the scanner walks beside the document.

use std::borrow::Cow;

/// The places wanted in a document. Made for each request, since a fresh instance keeps nothing: one list, and no copies.
#[derive(Clone, Debug)]
pub struct Pointers<'p> {
    steps: Vec<Step<'p>>,
    count: usize,
}

/// A place that is wanted itself or lies on the way to one.
#[derive(Clone, Debug, Default)]
struct Step<'p> {
    /// Its name in the object above it, unescaped.
    name: Cow<'p, str>,
    /// The name as an array index: digits without a leading zero.
    index: Option<usize>,
    /// The places in the list of the wanted pointers that end here; a pointer is rarely wanted twice.
    wanted: Vec<usize>,
    /// The first step below, and the next one beside.
    below: Option<StepId>,
    beside: Option<StepId>,
}

/// A step's place in [`Pointers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepId(usize);

impl<'p> Pointers<'p> {
    /// Takes pointers that [`is_pointer`] holds for; others name no place and find nothing.
    pub fn new<S: AsRef<str>>(pointers: &'p [S]) -> Self {
        let mut steps = Vec::with_capacity(2 * pointers.len() + 1);
        steps.push(Step::default());
        let mut tree = Self { steps, count: pointers.len() };
        for (place, pointer) in pointers.iter().enumerate() {
            let pointer = pointer.as_ref();
            if !is_pointer(pointer) {
                continue;
            }
            let mut end = Self::ROOT;
            let mut rest = pointer.as_bytes();
            while let [_, tail @ ..] = rest {
                let length = tail.iter().position(|byte| *byte == b'/').unwrap_or(tail.len());
                let from = pointer.len() - tail.len();
                end = tree.step_below(end, unescape(pointer.get(from..from + length).unwrap_or_default()));
                rest = tail.get(length..).unwrap_or_default();
            }
            if let Some(step) = tree.steps.get_mut(end.0) {
                step.wanted.push(place);
            }
        }
        tree
    }

    /// How many pointers there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) const ROOT: StepId = StepId(0);

    /// How many steps there are, each one place of the document.
    pub(super) fn steps(&self) -> usize {
        self.steps.len()
    }

    pub(super) fn wanted(&self, step: StepId) -> &[usize] {
        self.steps.get(step.0).map_or(&[], |step| &step.wanted)
    }

    pub(super) fn member(&self, step: StepId, name: &str) -> Option<StepId> {
        self.below(step).find(|(_, below)| below.name == name).map(|(id, _)| id)
    }

    pub(super) fn item(&self, step: StepId, index: usize) -> Option<StepId> {
        self.below(step).find(|(_, below)| below.index == Some(index)).map(|(id, _)| id)
    }

    pub(super) fn has_below(&self, step: StepId) -> bool {
        self.steps.get(step.0).is_some_and(|step| step.below.is_some())
    }

    fn below(&self, step: StepId) -> impl Iterator<Item = (StepId, &Step<'p>)> {
        let mut next = self.steps.get(step.0).and_then(|step| step.below);
        std::iter::from_fn(move || {
            let id = next?;
            let step = self.steps.get(id.0)?;
            next = step.beside;
            Some((id, step))
        })
    }

    fn step_below(&mut self, step: StepId, name: Cow<'p, str>) -> StepId {
        if let Some(known) = self.member(step, &name) {
            return known;
        }
        let new = StepId(self.steps.len());
        let is_index = name == "0" || name.as_bytes().first().is_some_and(|byte| matches!(byte, b'1'..=b'9'));
        let index = is_index.then(|| name.parse().ok()).flatten();
        let Some(above) = self.steps.get_mut(step.0) else { return new };
        let beside = above.below.replace(new);
        self.steps.push(Step { name, index, beside, ..Step::default() });
        new
    }
}

impl StepId {
    pub(super) fn place(self) -> usize {
        self.0
    }
}

/// Whether a text is a JSON pointer: empty, or starting with `/`, and `~` only in `~0` and `~1`.
pub fn is_pointer(text: &str) -> bool {
    let bytes = text.as_bytes();
    let escapes = |rest: &[u8]| matches!(rest, [b'~', b'0' | b'1', ..]) || !rest.starts_with(b"~");
    matches!(bytes, [] | [b'/', ..]) && (0..bytes.len()).all(|at| bytes.get(at..).is_some_and(escapes))
}

/// The pointer to the place below `names`, which may be anything.
pub fn pointer(names: &[&str]) -> String {
    names.iter().map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1"))).collect()
}

fn unescape(token: &str) -> Cow<'_, str> {
    if token.as_bytes().contains(&b'~') {
        Cow::Owned(token.replace("~1", "/").replace("~0", "~"))
    } else {
        Cow::Borrowed(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_a_pointer() {
        for right in ["", "/", "/a", "/a~0b/~1", "//"] {
            assert!(is_pointer(right), "{right}");
        }
        for wrong in ["a", "a/b", "/~", "/~2", "/a~"] {
            assert!(!is_pointer(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_pointer_finds_the_names_it_was_made_of() {
        assert_eq!(pointer(&["a", "b/~1"]), "/a/b~1~01");
        assert!(is_pointer(&pointer(&["~", "/"])));
        assert_eq!(unescape("b~1~01"), "b/~1");
    }

    #[test]
    fn escapes_are_undone_in_the_right_order() {
        assert_eq!(unescape("~01"), "~1");
        assert_eq!(unescape("~1~0"), "/~");
    }
}
