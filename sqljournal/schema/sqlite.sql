-- Times are milliseconds since 1970.
create table onceguard_journal (
  key        text primary key,
  token      text not null,
  state      integer not null check (state in (1, 2)), -- 1 begun, 2 done
  note       blob,
  record     blob,
  began_at   integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  until      integer,
  expires_at integer,
  attempts   integer not null default 0, -- how often a sweep has handed the row out, under a token of its own
  run         text, -- the token of the run itself, once a sweep has handed the row out
  fingerprint blob, -- what the run's request was; only of a row that a sweep has ended
  check ((state = 2) = (expires_at is not null)),
  check ((state = 1) = (until is not null))
) without rowid;
create index onceguard_journal_until   on onceguard_journal (until)      where state = 1;
create index onceguard_journal_expires on onceguard_journal (expires_at) where state = 2;
