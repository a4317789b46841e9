//! Configurations for tests: free ports, one upstream, routes that read JSON.

use std::net::SocketAddr;

/// A gateway over `store` and `upstream` with the route `/pay` of tenant `t`: key `/id`, material `/amount`. `idempotency` are
/// lines of its `[routes.idempotency]`. More TOML may be appended.
pub fn config(store: &str, upstream: SocketAddr, idempotency: &str) -> String {
    config_with(store, upstream, "", idempotency)
}

/// As [`config`], with lines of the upstream's table too.
pub fn config_with(store: &str, upstream: SocketAddr, upstream_keys: &str, idempotency: &str) -> String {
    format!(
        r#"
[server]
listen = ["127.0.0.1:0"]
state_dir = "{{dir}}/state"
[admin]
listen = "127.0.0.1:0"
[store]
url = "{store}"
[upstreams.u]
url = "http://{upstream}"
{upstream_keys}
[[routes]]
tenant = "t"
name = "pay"
path = "/pay"
plugin = "json"
plugin_config = {{ key = ["/id"], material = ["/amount"] }}
upstream = "u"
[routes.idempotency]
{idempotency}
"#
    )
}

/// The embedded store in the gateway's own directory.
pub const SQLITE: &str = "sqlite:{dir}/onceward.db";
