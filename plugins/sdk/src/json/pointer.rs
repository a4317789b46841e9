//! RFC 6901 pointers, merged into a tree that the scanner walks beside the document.

use std::borrow::Cow;

/// The places wanted in a document.
#[derive(Clone, Debug)]
pub struct Pointers {
    steps: Vec<Step>,
    count: usize,
}

/// A place that is wanted itself or lies on the way to one.
#[derive(Clone, Debug, Default)]
struct Step {
    /// The wanted pointers that end here, by their place in the list.
    wanted: Vec<usize>,
    below: Vec<Below>,
}

#[derive(Clone, Debug)]
struct Below {
    name: String,
    /// The name as an array index: digits without a leading zero.
    index: Option<usize>,
    step: StepId,
}

/// A step's place in [`Pointers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepId(usize);

impl Pointers {
    /// Takes pointers that [`is_pointer`] holds for; others name no place and find nothing.
    pub fn new<S: AsRef<str>>(pointers: &[S]) -> Self {
        let mut tree = Self { steps: vec![Step::default()], count: pointers.len() };
        for (place, pointer) in pointers.iter().enumerate() {
            let pointer = pointer.as_ref();
            if !is_pointer(pointer) {
                continue;
            }
            let end =
                pointer.split('/').skip(1).fold(Self::ROOT, |step, token| tree.step_below(step, &unescape(token)));
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
        self.below(step).iter().find(|below| below.name == name).map(|below| below.step)
    }

    pub(super) fn item(&self, step: StepId, index: usize) -> Option<StepId> {
        self.below(step).iter().find(|below| below.index == Some(index)).map(|below| below.step)
    }

    pub(super) fn has_below(&self, step: StepId) -> bool {
        !self.below(step).is_empty()
    }

    fn below(&self, step: StepId) -> &[Below] {
        self.steps.get(step.0).map_or(&[], |step| &step.below)
    }

    fn step_below(&mut self, step: StepId, name: &str) -> StepId {
        if let Some(known) = self.member(step, name) {
            return known;
        }
        let new = StepId(self.steps.len());
        self.steps.push(Step::default());
        let index = (name == "0" || !name.starts_with(['0', '+'])).then(|| name.parse().ok()).flatten();
        if let Some(step) = self.steps.get_mut(step.0) {
            step.below.push(Below { name: name.to_owned(), index, step: new });
        }
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
    let starts = text.is_empty() || text.starts_with('/');
    starts && text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']))
}

fn unescape(token: &str) -> Cow<'_, str> {
    if token.contains('~') { Cow::Owned(token.replace("~1", "/").replace("~0", "~")) } else { Cow::Borrowed(token) }
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
    fn escapes_are_undone_in_the_right_order() {
        assert_eq!(unescape("~01"), "~1");
        assert_eq!(unescape("~1~0"), "/~");
    }
}
