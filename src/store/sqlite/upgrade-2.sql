-- From schema 1: what happened to an event, other names of it, and what came under its key and was another.
ALTER TABLE idempotency_records ADD COLUMN route    TEXT;
ALTER TABLE idempotency_records ADD COLUMN history  TEXT;
ALTER TABLE idempotency_records ADD COLUMN request  BLOB;
ALTER TABLE idempotency_records ADD COLUMN alias_of TEXT;
ALTER TABLE idempotency_records ADD COLUMN mismatch TEXT;

CREATE INDEX idempotency_records_by_start ON idempotency_records (tenant, status, started_at);

PRAGMA user_version = 2;
