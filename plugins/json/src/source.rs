//! Where a key part or a material field is read from.

use onceward_plugin::config::{Item, Noted};
use onceward_plugin::json::{self, Pointers};
use onceward_plugin::limits::NAME_BYTES_MAX;
use onceward_plugin::{PluginError, Request, Value, form, header};

/// A place in the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A JSON pointer into the body.
    Pointer(String),
    /// A header, its name in lower case.
    Header(String),
    /// A field of the query.
    Query(String),
    /// A field of the body as a form.
    Form(String),
}

impl Source {
    pub(crate) fn read(item: &Item<'_>) -> Result<Self, Noted> {
        let text = item.text()?;
        if text.len() > NAME_BYTES_MAX {
            return Err(item.fault("is longer than 256 bytes"));
        }
        if text.starts_with('/') {
            let right = json::is_pointer(text);
            return right
                .then(|| Self::Pointer(text.to_owned()))
                .ok_or_else(|| item.fault("is no JSON pointer: `~` is written `~0`, and `/` within a name `~1`"));
        }
        let (kind, name) = text.split_once(':').unwrap_or((text, ""));
        if name.is_empty() {
            return Err(item.fault(SHAPES));
        }
        match kind {
            "header" => Ok(Self::Header(name.to_ascii_lowercase())),
            "query" => Ok(Self::Query(name.to_owned())),
            "form" => Ok(Self::Form(name.to_owned())),
            _ => Err(item.fault(SHAPES)),
        }
    }

    /// As a material field's name.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Pointer(pointer) => pointer.clone(),
            Self::Header(name) => format!("header:{name}"),
            Self::Query(name) => format!("query:{name}"),
            Self::Form(name) => format!("form:{name}"),
        }
    }

    /// Whether it lies in what a MAC of the body covers.
    pub(crate) fn is_in_body(&self) -> bool {
        matches!(self, Self::Pointer(_) | Self::Form(_))
    }
}

const SHAPES: &str = "must be a JSON pointer as in \"/id\", or `header:NAME`, `query:NAME` or `form:NAME`";

/// What is at each of `sources`, in their order; none where there is nothing. The body is read as JSON only if one asks for it.
pub(crate) fn values(request: &Request, sources: &[&Source]) -> Result<Vec<Option<Value>>, PluginError> {
    let pointers = names(sources, |source| if let Source::Pointer(pointer) = source { Some(pointer) } else { None });
    let fields = names(sources, |source| if let Source::Form(name) = source { Some(name) } else { None });
    let queries = names(sources, |source| if let Source::Query(name) = source { Some(name) } else { None });
    let query = request.query.as_deref().unwrap_or_default().as_bytes();

    let mut nodes = match pointers.as_slice() {
        [] => Vec::new(),
        pointers => json::find_all(&request.body, &Pointers::new(pointers))?,
    }
    .into_iter();
    let mut fields = form::find_all(&request.body, &fields)?.into_iter();
    let mut queries = form::find_all(query, &queries)?.into_iter();

    let value = |source: &&Source| match source {
        Source::Pointer(pointer) => match nodes.next().flatten() {
            None => Ok(None),
            Some(node) => node.scalar().map(Some).ok_or_else(|| not_scalar(pointer)),
        },
        Source::Form(_) => Ok(fields.next().flatten().map(|text| Value::Text(text.into_owned()))),
        Source::Query(_) => Ok(queries.next().flatten().map(|text| Value::Text(text.into_owned()))),
        Source::Header(name) => header::one(&request.headers, name)
            .map(|line| line.map(|text| Value::Text(text.to_owned())))
            .map_err(|fault| fault.about(name)),
    };
    sources.iter().map(value).collect()
}

fn names<'a>(sources: &[&'a Source], pick: impl Fn(&'a Source) -> Option<&'a String>) -> Vec<&'a str> {
    sources.iter().filter_map(|source| pick(source)).map(String::as_str).collect()
}

fn not_scalar(pointer: &str) -> PluginError {
    PluginError::Malformed(format!(
        "{pointer} is an object or an array, where a text, a number, a boolean or null is wanted"
    ))
}
