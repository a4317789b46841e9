//! Why the desk does not do something.

use crate::plugin::registry::RegistryError;

use super::case::CaseFault;
use super::evidence::Evidence;
use super::gate::Unfit;
use super::place::PrepareError;
use super::quota::NotNow;

/// Why something is not done. The text is for whoever asked.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// No such tenant, plugin or version.
    #[error("there is no {0}")]
    Absent(String),
    /// Too many uploads.
    #[error("{}", not_now(.0))]
    NotNow(NotNow),
    /// The gate does not let it in.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// The tenant's code is as large as it may be.
    #[error(
        "the tenant's plugins would have {used} bytes of code; limits.code is {limit}: an older version goes when a newer one comes, so upload fewer plugins, or ask the operator for more"
    )]
    Quota {
        /// With the upload.
        used: u64,
        /// Of all the tenant's versions together.
        limit: u64,
    },
    /// The version and the configuration do not fit.
    #[error("the configuration does not fit this version")]
    Routes(Vec<(String, String)>),
    /// The version is no plugin here any more: it was made for another gateway, or its code cannot be had.
    #[error("the version cannot be prepared: {0}")]
    Unprepared(String),
    /// It gives known events other keys, and declares the namespace of before.
    #[error("{}", keys_differ(.0))]
    Keys(Box<Evidence>),
    /// Nothing to do that to.
    #[error("{0}")]
    Conflict(&'static str),
    /// A case that cannot be run.
    #[error("the request cannot be run: {0}")]
    Case(#[from] CaseFault),
    /// The registry does not answer. What was asked for may have been done or not.
    #[error("the plugin registry does not answer")]
    Registry(RegistryError),
}

fn keys_differ(evidence: &Evidence) -> String {
    let Some(counts) = evidence.blocking() else { return String::new() };
    let example =
        counts.examples.iter().find(|example| ["keys", "collision", "split"].contains(&example.kind.as_str()));
    let example = example.map_or_else(String::new, |example| {
        format!(" (on route {}: {} becomes {})", example.route, example.active, example.candidate)
    });
    format!(
        "the version gives other keys than the active one to {} of {} deliveries{example}, with {} collisions and {} splits: a redelivery \
         across the change would be forwarded again. Give the keys of before, or declare another key-namespace",
        counts.keys, counts.compared, counts.collisions, counts.splits
    )
}

fn not_now(why: &NotNow) -> String {
    match why {
        NotNow::Busy => "another upload of this tenant is under way; one at a time".to_owned(),
        NotNow::Rate { limit, .. } => {
            format!("limits.uploads is {} in {:?}, and they are used up; refused uploads count", limit.count, limit.per)
        }
    }
}

impl From<RegistryError> for Refused {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Absent(_) => Self::Unprepared(error.to_string()),
            RegistryError::Damaged { .. } => Self::Unprepared(error.to_string()),
            error => Self::Registry(error),
        }
    }
}

impl From<PrepareError> for Refused {
    fn from(error: PrepareError) -> Self {
        match error {
            PrepareError::Registry(error) => error.into(),
            PrepareError::Routes(faults) => Self::Routes(faults),
            error => Self::Unprepared(error.to_string()),
        }
    }
}
