//! `[plugins]`.

use crate::config::fault::Problem;
use crate::config::model::{Registry, Secret};
use crate::config::raw::Table;
use crate::config::values;

/// The kinds of buckets, each with how the variables begin that its own tools read.
const BUCKETS: [(&str, &str); 3] = [("s3:", "AWS_"), ("gs:", "GOOGLE_"), ("az:", "AZURE_")];

pub(super) fn registry(table: &mut Table<'_>) -> Option<Registry> {
    let item = table.required("registry")?;
    let env = item.reader.env;
    item.read(|value| {
        let url = values::text(value)?;
        if url.strip_prefix("file:").is_some_and(|directory| !directory.is_empty()) {
            return Ok(Registry { url, options: Vec::new() });
        }
        let bucket = BUCKETS.into_iter().find(|(scheme, _)| {
            let rest = url.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("//"));
            rest.is_some_and(|bucket| !bucket.is_empty() && !bucket.starts_with('/'))
        });
        let Some((_, variables)) = bucket else {
            // Not repeated: an object store's address may hold a key.
            return Err(
                Problem::new("is not the address of an object store").hint("write file:PATH, s3://…, gs://… or az://…")
            );
        };
        let options = env.starting_with(variables).map(|(name, value)| (name.to_owned(), Secret::new(value)));
        Ok(Registry { options: options.collect(), url })
    })
}
