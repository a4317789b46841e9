//! From the registry's address to its object store.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, RetryConfig};

use super::{CALL_MAX, RegistryError};

/// Makes the builder of one kind of bucket: its address, what the environment says, and a bound on its own retries.
macro_rules! bucket {
    ($builder:ty, $url:expr, $options:expr) => {{
        let retry = RetryConfig { max_retries: 2, retry_timeout: CALL_MAX, ..RetryConfig::default() };
        let builder = <$builder>::new().with_url($url).with_retry(retry);
        let builder = $options.fold(builder, |builder, (name, value)| match name.parse() {
            Ok(key) => builder.with_config(key, value),
            // A variable of another tool.
            Err(_) => builder,
        });
        Arc::new(builder.build().map_err(RegistryError::address)?) as Arc<dyn ObjectStore>
    }};
}

/// Opens the store that `url` names; nothing is asked of a bucket yet. `options` are names and values as the environment has them.
pub(super) fn open<'o>(
    url: &str,
    options: impl Iterator<Item = (&'o str, &'o str)>,
) -> Result<Arc<dyn ObjectStore>, RegistryError> {
    if let Some(directory) = url.strip_prefix("file:") {
        // The directory need not be there yet: writing makes it.
        let directory = std::path::absolute(directory).map_err(RegistryError::address)?;
        let prefix = Path::from_absolute_path(directory).map_err(RegistryError::address)?;
        return Ok(Arc::new(PrefixStore::new(LocalFileSystem::new().with_fsync(true), prefix)));
    }
    let timeout = format!("{} s", Duration::from_secs(5).as_secs());
    let options = options
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .chain([("timeout".to_owned(), timeout)]);
    let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
    let store = match scheme {
        "s3" => bucket!(AmazonS3Builder, url, options),
        "gs" => bucket!(GoogleCloudStorageBuilder, url, options),
        "az" => bucket!(MicrosoftAzureBuilder, url, options),
        _ => return Err(RegistryError::Address("no object store has such an address".to_owned())),
    };
    let prefix = rest.split_once('/').map_or("", |(_, prefix)| prefix.trim_matches('/'));
    if prefix.is_empty() {
        return Ok(store);
    }
    Ok(Arc::new(PrefixStore::new(store, Path::parse(prefix).map_err(RegistryError::address)?)))
}
