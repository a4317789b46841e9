-- Times are microseconds since the Unix epoch, by this server's clock. `key` is the list of the key's parts in JSON. Text that is
-- not JSON writes a backslash as \\ and a NUL, which PostgreSQL cannot hold, as \0.
CREATE TABLE idempotency_records (
  tenant        text COLLATE "C" NOT NULL,
  scope         text COLLATE "C" NOT NULL,
  namespace     text COLLATE "C" NOT NULL,
  kind          text COLLATE "C" NOT NULL,
  key           text COLLATE "C" NOT NULL,
  status        text COLLATE "C" NOT NULL,
  fingerprint   text     NOT NULL,
  field_digests text     NOT NULL,
  owner         text     NOT NULL,
  fence         bigint   NOT NULL,
  attempt       bigint   NOT NULL,
  started_at    bigint   NOT NULL,
  finished_at   bigint,
  lease_until   bigint   NOT NULL,
  expires_at    bigint   NOT NULL,
  class         text,
  reason        text,
  status_code   integer,
  headers       text,
  body          bytea,
  resource_id   text,
  error         text,
  released      smallint NOT NULL,
  ambiguous     smallint NOT NULL,
  plugin        text     NOT NULL,
  version       text     NOT NULL,
  route         text,
  history       text,
  request       bytea,
  alias_of      text,
  mismatch      text,
  UNIQUE (tenant, scope, namespace, kind, key)
);

CREATE INDEX idempotency_records_by_end ON idempotency_records (expires_at);

-- For listings.
CREATE INDEX idempotency_records_by_start ON idempotency_records (tenant, status, started_at);

-- One row: the store's own record.
CREATE TABLE idempotency_meta (
  only_one   boolean PRIMARY KEY DEFAULT true CHECK (only_one),
  epoch      text    NOT NULL,
  digest_key bytea   NOT NULL
);

-- One row: when the store was last found writable.
CREATE TABLE idempotency_ping (
  only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
  at       bigint  NOT NULL
);

-- One row: the version of all this.
CREATE TABLE idempotency_schema (
  only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
  version  bigint  NOT NULL
);

INSERT INTO idempotency_schema (version) VALUES (1);

CREATE FUNCTION onceward_now() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT round(extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- The conditional write: compare, stamp, write, in one statement. The rules are those of Expect::holds and Draft::stamp. A null
-- new_floor keeps the fence that stands, a null new_lease the end of the lease.
--
-- Its name ends in the number of its form: during an upgrade, gateways of both versions call theirs.
CREATE FUNCTION onceward_swap_1(
  of_tenant text, of_scope text, of_namespace text, of_kind text, of_key text,
  at_lease text, at_fence bigint, at_status text,
  new_floor bigint, new_lease bigint, new_ttl bigint, at_least boolean, ends boolean,
  new_status text, new_fingerprint text, new_field_digests text, new_owner text, new_attempt text, new_class text,
  new_reason text, new_status_code text, new_headers text, new_body bytea, new_resource_id text, new_error text,
  new_released text, new_ambiguous text, new_plugin text, new_version text, new_route text, new_history text,
  new_request bytea, new_alias_of text, new_mismatch text
) RETURNS TABLE (done boolean, now_at bigint, r idempotency_records) LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  seen   idempotency_records;
  stamps idempotency_records;
  there  boolean;
  stands boolean;
  locked boolean := false;
BEGIN
  -- What is refused is refused unlocked: a duplicate then writes nothing, not even a lock.
  LOOP
    IF locked THEN
      SELECT * INTO seen FROM idempotency_records WHERE tenant = of_tenant AND scope = of_scope
        AND namespace = of_namespace AND kind = of_kind AND key = of_key FOR UPDATE;
    ELSE
      SELECT * INTO seen FROM idempotency_records WHERE tenant = of_tenant AND scope = of_scope
        AND namespace = of_namespace AND kind = of_kind AND key = of_key;
    END IF;
    there := FOUND;
    -- Read under the lock, so that the order of times is the order of writes.
    now_at := onceward_now();
    stands := there AND seen.expires_at > now_at;

    done := CASE at_lease
      WHEN 'absent' THEN NOT stands
      ELSE stands AND seen.fence = at_fence AND seen.status = at_status AND CASE at_lease
        WHEN 'live' THEN now_at < seen.lease_until
        WHEN 'over' THEN now_at >= seen.lease_until
        ELSE at_lease = 'any'
      END
    END;
    IF NOT done THEN
      IF stands THEN r := seen; END IF;
      RETURN NEXT;
      RETURN;
    END IF;
    IF there AND NOT locked THEN
      locked := true;
      CONTINUE;
    END IF;

    IF new_floor IS NULL THEN
      stamps.fence := CASE WHEN stands THEN seen.fence ELSE 0 END;
      stamps.started_at := CASE WHEN stands THEN seen.started_at ELSE now_at END;
    ELSE
      stamps.fence := greatest(CASE WHEN stands THEN seen.fence + 1 ELSE 0 END, now_at, new_floor);
      stamps.started_at := now_at;
    END IF;
    stamps.finished_at := CASE WHEN ends THEN now_at END;
    stamps.lease_until := CASE WHEN new_lease IS NOT NULL THEN now_at + new_lease
      WHEN stands THEN seen.lease_until ELSE now_at END;
    stamps.expires_at := now_at + new_ttl;
    IF at_least AND stands THEN
      stamps.expires_at := greatest(stamps.expires_at, seen.expires_at);
    END IF;

    IF there THEN
      UPDATE idempotency_records SET status = new_status, fingerprint = new_fingerprint, field_digests = new_field_digests,
        owner = new_owner, fence = stamps.fence, attempt = new_attempt::bigint, started_at = stamps.started_at,
        finished_at = stamps.finished_at, lease_until = stamps.lease_until, expires_at = stamps.expires_at,
        class = new_class, reason = new_reason, status_code = new_status_code::integer, headers = new_headers,
        body = new_body, resource_id = new_resource_id, error = new_error, released = new_released::smallint,
        ambiguous = new_ambiguous::smallint, plugin = new_plugin, version = new_version, route = new_route,
        history = new_history, request = new_request, alias_of = new_alias_of, mismatch = new_mismatch
      WHERE tenant = of_tenant AND scope = of_scope AND namespace = of_namespace AND kind = of_kind AND key = of_key;
    ELSE
      INSERT INTO idempotency_records (tenant, scope, namespace, kind, key, status, fingerprint, field_digests, owner,
        fence, attempt, started_at, finished_at, lease_until, expires_at, class, reason, status_code, headers, body,
        resource_id, error, released, ambiguous, plugin, version, route, history, request, alias_of, mismatch)
      VALUES (of_tenant, of_scope, of_namespace, of_kind, of_key, new_status, new_fingerprint, new_field_digests, new_owner,
        stamps.fence, new_attempt::bigint, stamps.started_at, stamps.finished_at, stamps.lease_until, stamps.expires_at,
        new_class, new_reason, new_status_code::integer, new_headers, new_body, new_resource_id, new_error,
        new_released::smallint, new_ambiguous::smallint, new_plugin, new_version, new_route, new_history, new_request,
        new_alias_of, new_mismatch)
      ON CONFLICT DO NOTHING;
      IF NOT FOUND THEN
        -- Another one was first. Now it can be seen.
        CONTINUE;
      END IF;
    END IF;
    r := stamps;
    RETURN NEXT;
    RETURN;
  END LOOP;
END $$;
