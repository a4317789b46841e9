//! What came of a replay of captured requests, as the API shows it.

use serde::Serialize;
use utoipa::ToSchema;

use crate::gateway::capture::Replayed;
use crate::gateway::shadow::{Report, Summary};

/// What a version makes of the requests that this replica has captured, beside the active one.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReplayView {
    #[serde(flatten)]
    replayed: Replayed,
    report: Summary,
}

impl ReplayView {
    pub fn of((report, replayed): &(Report, Replayed)) -> Self {
        Self { replayed: replayed.clone(), report: report.summary() }
    }
}
