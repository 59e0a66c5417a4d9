package pg

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	schemaName = "stele"
	// schemaVersion is that of the tables below.
	schemaVersion = 1
	// schemaLock is the advisory lock under which the tables are made: "stele" in ASCII.
	schemaLock = "495740054629"
	// oldest is the oldest server that is taken: 12, as server_version_num has it.
	oldest = 120000
)

// Schema makes the tables, for a database in which Stele's own role may not. All databases of a server's database share them. The role needs
// USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on the tables. Readers need SELECT.
const Schema = `CREATE SCHEMA IF NOT EXISTS stele;
CREATE TABLE stele.log (
	db_id uuid, epoch bigint, first_t bigint, hash bytea NOT NULL, payload bytea NOT NULL,
	PRIMARY KEY (db_id, epoch, first_t)
);
ALTER TABLE stele.log ALTER payload SET STORAGE EXTERNAL;
CREATE TABLE stele.root (
	name text COLLATE "C" PRIMARY KEY, bytes bytea NOT NULL, swapped_at timestamptz NOT NULL
) WITH (fillfactor = 20);
CREATE TABLE stele.blob (
	db_id uuid, name text COLLATE "C", bytes bytea NOT NULL,
	PRIMARY KEY (db_id, name)
);
ALTER TABLE stele.blob ALTER bytes SET STORAGE EXTERNAL;
CREATE TABLE stele.meta (version int NOT NULL);
INSERT INTO stele.meta VALUES (1);
`

// serverSettings is what the server says of itself.
type serverSettings struct {
	version, fullPageWrites, synchronousCommit, standbys string
	tables                                               bool
	user, database                                       string
}

// durability says in words what a commit promises.
func (s *serverSettings) durability() string {
	d := "WAL flushed"
	switch {
	case s.standbys != "" && s.synchronousCommit == "remote_apply":
		d += ", and applied by the synchronous standbys"
	case s.standbys != "":
		d += ", by the synchronous standbys too"
	}
	if s.fullPageWrites != "on" {
		d += "; full_page_writes is off"
	}
	return d
}

// setUp looks at the server and makes the tables if they are not there. The connection is the lease's, which is needed first.
func (l *Log) setUp(ctx context.Context) (*serverSettings, error) {
	s, err := l.settings(ctx)
	if err != nil {
		return nil, err
	}
	if v, err := strconv.Atoi(s.version); err != nil || v < oldest {
		return nil, fmt.Errorf("%w: server version %s is older than %d", ErrSchema, s.version, oldest)
	}
	if !s.tables {
		if err := l.makeTables(ctx, s); err != nil {
			return nil, err
		}
	}
	return s, l.checkVersion(ctx, s)
}

func (l *Log) settings(ctx context.Context) (*serverSettings, error) {
	s := new(serverSettings)
	r := &request{stmt: settings, row: func(v [][]byte) error {
		*s = serverSettings{string(v[0]), string(v[1]), string(v[2]), string(v[3]), string(v[4]) == "true", string(v[5]), string(v[6])}
		return nil
	}}
	return s, l.one(ctx, l.lease, s, r)
}

func (l *Log) checkVersion(ctx context.Context, s *serverSettings) error {
	version := 0
	r := &request{stmt: readVersion, row: func(v [][]byte) (err error) {
		version, err = strconv.Atoi(string(v[0]))
		return err
	}}
	if err := l.one(ctx, l.lease, s, r); err != nil {
		return err
	}
	switch {
	case version > schemaVersion:
		return fmt.Errorf("%w: its tables are of version %d, and this library knows up to %d: use a newer one", ErrSchema, version, schemaVersion)
	case version < 1:
		return fmt.Errorf("%w: table stele.meta holds no version", ErrSchema)
	}
	return nil
}

// one runs one request, and says what to do about rights that the role lacks.
func (l *Log) one(ctx context.Context, p *pool, s *serverSettings, r *request) error {
	_, err := p.do(ctx, r)
	if err == nil {
		err = r.err
	}
	return lacksRights(s, err)
}

func lacksRights(s *serverSettings, err error) error {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) || pe.Code != "42501" && pe.Code != "25006" {
		return err
	}
	role, database := "this role", "this database"
	if s.user != "" {
		role, database = "role "+s.user, "database "+s.database
	}
	return fmt.Errorf("%w: %w: %s may not make or use it; either GRANT CREATE ON DATABASE for the first open, or let somebody who may "+
		"run the statements of pg.Schema in %s and GRANT USAGE ON SCHEMA %s and SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s to %s",
		ErrSchema, err, role, database, schemaName, schemaName, role)
}

// makeTables makes the tables, unless somebody else has by the time that the lock is ours. The lock belongs to the transaction, so that it
// holds through a pooler. What is read behind the lock must be what is there now: so isolation is set, and the catalog is read as a table,
// since to_regclass may answer from what the session knew before it waited.
func (l *Log) makeTables(ctx context.Context, s *serverSettings) (err error) {
	c, err := l.lease.take(ctx)
	if err != nil {
		return err
	}
	keep := false
	defer func() { l.lease.give(c, keep, true) }()
	results, err := c.pg.Exec(ctx, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "+
		"SET LOCAL synchronous_commit = on; SET LOCAL client_min_messages = warning; "+
		"SELECT pg_advisory_xact_lock("+schemaLock+"); "+
		"SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '"+schemaName+"' AND c.relname = 'meta'").ReadAll()
	if err == nil && string(results[len(results)-1].Rows[0][0]) == "0" {
		_, err = c.pg.Exec(ctx, Schema).ReadAll()
	}
	if err == nil {
		_, err = c.pg.Exec(ctx, "COMMIT").ReadAll()
	}
	if err != nil {
		if !c.pg.IsClosed() {
			_, _ = c.pg.Exec(ctx, "ROLLBACK").ReadAll()
		}
		return lacksRights(s, err)
	}
	keep = true
	return nil
}
