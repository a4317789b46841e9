//! A sender: one request a connection, the whole answer as bytes.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// An answer as it came.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case, in the order of arrival; each char of a value is one octet.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// The first value of a field.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// What the engine says it did.
    pub fn idempotency(&self) -> &str {
        self.header("idempotency-status").unwrap_or("")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The problem's code, empty when the body is none.
    pub fn code(&self) -> String {
        let problem: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        problem["code"].as_str().unwrap_or("").to_owned()
    }

    /// All that a replay must repeat: everything but the fields that the contract lets differ.
    pub fn repeated(&self) -> (u16, Vec<(String, String)>, Vec<u8>) {
        let differs = ["date", "connection", "content-length", "transfer-encoding", "set-cookie"];
        let ours = |name: &str| name.starts_with("idempotency-") || name == "onceward-event";
        let mut kept: Vec<_> =
            self.headers.iter().filter(|(name, _)| !differs.contains(&name.as_str()) && !ours(name)).cloned().collect();
        kept.sort_by(|(a, _), (b, _)| a.cmp(b));
        (self.status, kept, self.body.clone())
    }
}

/// POSTs a body.
pub async fn post(to: SocketAddr, path: &str, fields: &[(&str, &str)], body: impl AsRef<[u8]>) -> Answer {
    send(to, "POST", path, fields, body.as_ref()).await
}

/// GETs a page.
pub async fn get(to: SocketAddr, path: &str) -> Answer {
    send(to, "GET", path, &[], &[]).await
}

/// Any request, on a connection of its own.
pub async fn send(to: SocketAddr, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Answer {
    exchange(to, &request(to, method, path, fields, body))
        .await
        .unwrap_or_else(|cut| panic!("the answer was cut: {cut:?}"))
}

/// Sends these bytes and reads to the end; `Err` holds what came when the gateway ended before its answer did.
pub async fn exchange(to: SocketAddr, bytes: &[u8]) -> Result<Answer, Vec<u8>> {
    let mut socket = TcpStream::connect(to).await.map_err(|_| Vec::new())?;
    // An early answer may close the way for the rest of the request; the answer is what counts.
    let _ = socket.write_all(bytes).await;
    read_answer(&mut socket).await
}

/// A request's bytes.
pub fn request(to: SocketAddr, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head =
        format!("{method} {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

/// Reads to the end of the connection; `Err` holds what came when the answer is not whole.
pub async fn read_answer(socket: &mut TcpStream) -> Result<Answer, Vec<u8>> {
    let mut bytes = Vec::new();
    let read = timeout(Duration::from_secs(30), socket.read_to_end(&mut bytes)).await.expect("no answer in 30 s");
    let whole = read.is_ok();
    parse(&bytes).filter(|_| whole || !bytes.is_empty()).ok_or(bytes)
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head: String = bytes[..end].iter().copied().map(char::from).collect();
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let field = |line: &str| {
        line.split_once(':')
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()))
    };
    let headers: Vec<_> = lines.filter_map(field).collect();
    let of = |name: &str| headers.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
    let body = if of("transfer-encoding") == Some("chunked") {
        dechunk(&bytes[end..])?
    } else {
        let length = of("content-length").map_or(Some(0), |length| length.parse().ok())?;
        let body = &bytes[end..];
        (body.len() == length).then(|| body.to_vec())?
    };
    Some(Answer { status, headers, body })
}

/// The data of a chunked body; none when its end is missing.
fn dechunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
        rest = &rest[line + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}
