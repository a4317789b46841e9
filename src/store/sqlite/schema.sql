-- Times are microseconds since the Unix epoch. `key` is the list of the key's parts in JSON. STRICT keeps a column from
-- holding what it is not.
CREATE TABLE idempotency_records (
  tenant        TEXT    NOT NULL,
  scope         TEXT    NOT NULL,
  namespace     TEXT    NOT NULL,
  kind          TEXT    NOT NULL,
  key           TEXT    NOT NULL,
  status        TEXT    NOT NULL,
  fingerprint   TEXT    NOT NULL,
  field_digests TEXT    NOT NULL,
  owner         TEXT    NOT NULL,
  fence         INTEGER NOT NULL,
  attempt       INTEGER NOT NULL,
  started_at    INTEGER NOT NULL,
  finished_at   INTEGER,
  lease_until   INTEGER NOT NULL,
  expires_at    INTEGER NOT NULL,
  class         TEXT,
  reason        TEXT,
  status_code   INTEGER,
  headers       TEXT,
  body          BLOB,
  resource_id   TEXT,
  error         TEXT,
  released      INTEGER NOT NULL,
  ambiguous     INTEGER NOT NULL,
  plugin        TEXT    NOT NULL,
  version       TEXT    NOT NULL,
  route         TEXT,
  history       TEXT,
  request       BLOB,
  alias_of      TEXT,
  mismatch      TEXT,
  checksum      BLOB    NOT NULL,
  UNIQUE (tenant, scope, namespace, kind, key)
) STRICT;

CREATE INDEX idempotency_records_by_end ON idempotency_records (expires_at);

-- For listings.
CREATE INDEX idempotency_records_by_start ON idempotency_records (tenant, status, started_at);

-- One row: the store's own record.
CREATE TABLE meta (
  only       INTEGER NOT NULL PRIMARY KEY CHECK (only = 1),
  epoch      TEXT    NOT NULL,
  digest_key BLOB    NOT NULL
) STRICT;

-- One row: when the store was last found writable.
CREATE TABLE ping (
  only INTEGER NOT NULL PRIMARY KEY CHECK (only = 1),
  at   INTEGER NOT NULL
) STRICT;

PRAGMA user_version = 2;
