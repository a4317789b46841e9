//! What replicas found of a candidate beside live traffic: an object a comparison, which its writer alone writes over.

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode, PutOptions};

use super::{CodeDigest, PluginId, Registry, RegistryError, within};

/// The most reports that are read of one candidate: each restart of a replica begins a new one.
const REPORTS_MAX: usize = 100;

impl Registry {
    /// Writes a report, over what its writer wrote before.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn put_report(
        &self,
        id: &PluginId,
        candidate: CodeDigest,
        writer: &str,
        report: Bytes,
    ) -> Result<(), RegistryError> {
        let path = folder(id, candidate).join(format!("{writer}.json"));
        within(self.0.put_opts(&path, report.into(), PutOptions::from(PutMode::Overwrite))).await?;
        Ok(())
    }

    /// The reports on a candidate, each with its path.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn reports(&self, id: &PluginId, candidate: CodeDigest) -> Result<Vec<(String, Bytes)>, RegistryError> {
        let mut objects = self.list(&folder(id, candidate)).await?;
        objects.sort_by_key(|object| std::cmp::Reverse(object.last_modified));
        let mut reports = Vec::new();
        for object in objects.into_iter().take(REPORTS_MAX) {
            match self.read(&object.location).await {
                Ok(report) => reports.push((object.location.to_string(), report)),
                Err(RegistryError::Absent(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(reports)
    }

    /// Removes the reports on a version that is gone.
    pub(super) async fn forget_reports(&self, id: &PluginId, candidate: CodeDigest) -> Result<(), RegistryError> {
        for object in self.list(&folder(id, candidate)).await? {
            match within(self.0.delete(&object.location)).await {
                Ok(()) | Err(RegistryError::Absent(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn folder(id: &PluginId, candidate: CodeDigest) -> Path {
    Path::from_iter([id.tenant.as_str(), &id.name, "shadow", &candidate.to_string()])
}
