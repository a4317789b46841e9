//! A certificate by an authority of the test's own, which nobody trusts who is not told to.

use std::process::Command;

use tempfile::TempDir;

/// The authority and the one certificate that it gave.
pub struct Authority {
    directory: TempDir,
}

impl Authority {
    /// Makes both, the certificate for 127.0.0.1. Fails loudly where there is no `openssl`.
    pub fn new() -> Self {
        Self::for_name("IP:127.0.0.1")
    }

    /// Makes both, the certificate for a name as `openssl` writes it: `DNS:host`, `IP:address`.
    pub fn for_name(name: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let openssl = |line: &str| {
            let done = Command::new("openssl").args(line.split(' ')).current_dir(directory.path()).output();
            let done = done.expect("openssl runs: install it to run these tests");
            assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
        };
        std::fs::write(directory.path().join("san"), format!("subjectAltName={name}\n")).unwrap();
        openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=nobody");
        openssl("req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=redis");
        openssl(
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2 -extfile san",
        );
        Self { directory }
    }

    /// What a process that is to trust it needs.
    pub fn trust(&self) -> [(&'static str, String); 1] {
        [("SSL_CERT_FILE", self.file("ca.pem"))]
    }

    /// What makes a Redis, or a Sentinel, listen with the certificate on this port.
    pub fn redis_options(&self, port: u16) -> Vec<String> {
        let port = port.to_string();
        let [cert, key, ca] = ["server.pem", "server.key", "ca.pem"].map(|name| self.file(name));
        [
            ["--tls-port", &port],
            ["--tls-cert-file", &cert],
            ["--tls-key-file", &key],
            ["--tls-ca-cert-file", &ca],
            ["--tls-auth-clients", "no"],
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
    }

    /// Where `ca.pem`, `server.pem` or `server.key` lies.
    pub fn file(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }
}
