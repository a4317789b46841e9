//! Path patterns and their captures: `/a/{b}/{*rest}`.

use crate::config::fault::Problem;
use crate::config::values::quote;

const HINT: &str = "write \"/a/{name}\" for one segment, \"/a/{*rest}\" for the tail";

/// The names a route's path captures, in order.
pub(super) fn route_path(path: &str) -> Result<Vec<String>, Problem> {
    check(path)?;
    matchit::Router::new()
        .insert(path, ())
        .map_err(|error| Problem::new(format!("{} is not a path: {}", quote(path), lower(&error))).hint(HINT))?;
    let mut names = captures(path).ok_or_else(|| Problem::new(format!("{} is not a path", quote(path))).hint(HINT))?;
    names.sort_unstable();
    match names.windows(2).find_map(|pair| match pair {
        [one, other] if one == other => Some(one),
        _ => None,
    }) {
        Some(twice) => Err(Problem::new(format!("captures {{{twice}}} twice"))),
        None => Ok(names),
    }
}

/// An upstream's path, with its captures written as `{name}`, the tail too.
pub(super) fn upstream_path(path: &str, known: &[String]) -> Result<String, Problem> {
    check(path)?;
    let names = captures(path).ok_or_else(|| Problem::new(format!("{} has unmatched braces", quote(path))))?;
    match names.iter().find(|name| !known.contains(name)) {
        None => Ok(path.replace("{*", "{")),
        Some(name) if known.is_empty() => {
            Err(Problem::new(format!("{{{name}}} is not captured: the route's path has no captures")))
        }
        Some(name) => Err(Problem::new(format!("{{{name}}} is not captured by the route's path"))
            .hint(format!("captured: {}", known.join(", ")))),
    }
}

/// What holds for both: an origin-form path without a query.
fn check(path: &str) -> Result<(), Problem> {
    if !path.starts_with('/') {
        return Err(Problem::new(format!("{} does not start with /", quote(path))).hint("write \"/…\""));
    }
    if path.contains(['?', '#']) || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Problem::new(format!("{} has characters that no path has", quote(path)))
            .hint("percent-encode them; a query is never part of it"));
    }
    Ok(())
}

/// The captures of a pattern; none if its braces do not match. Doubled braces stand for themselves.
fn captures(pattern: &str) -> Option<Vec<String>> {
    let text = pattern.replace("{{", "").replace("}}", "");
    let mut names = Vec::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}')?;
        let name = name.strip_prefix('*').unwrap_or(name);
        if before.contains('}') || name.is_empty() || name.contains(['{', '/']) {
            return None;
        }
        names.push(name.to_owned());
        rest = after;
    }
    (!rest.contains('}')).then_some(names)
}

fn lower(error: &matchit::InsertError) -> String {
    let text = error.to_string();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_ascii_lowercase().to_string() + letters.as_str()).unwrap_or_default()
}
