package pg

// statement is one of those that this package sends. Where a connection is our own it is prepared under its name at its first use.
type statement struct {
	id   int // its place in conn.prepared
	name string
	sql  string // begins with its verb, as the server's answer does
}

// durably makes the commit of the statement in whose FROM clause it stands wait until it is durable, whatever the session, the role or
// a pooler has set, and tell if it was not: set_config is local to the transaction, and the statement is alone in it. The one
// setting that is stricter stays. A commit's warnings are asked for, since a role may have turned them off. The planner runs the
// subquery although nobody looks at its columns: set_config is volatile.
const durably = `(SELECT
	set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true),
	set_config('client_min_messages', 'warning', true)) AS durably`

// statements is one more than the highest id, those of tests included.
const statements = 32

var (
	// insertObject inserts an object. If the key is there with the same hash, it updates the row to what it is: a commit of our own that
	// waits for the same durability, behind the one that we know nothing of. With another hash it does nothing.
	// $1 instance, $2 epoch, $3 first t, $4 hash, $5 bytes; one row affected, or none: conflict.
	insertObject = &statement{0, "stele_insert", `INSERT INTO stele.log AS l (db_id, epoch, first_t, hash, payload)
SELECT $1::uuid, $2::bigint, $3::bigint, $4::bytea, $5::bytea FROM ` + durably + `
ON CONFLICT (db_id, epoch, first_t) DO UPDATE SET hash = excluded.hash WHERE l.hash = excluded.hash`}

	// fence reads the root, and which of some keys are not there, in one snapshot. Each key is looked up by a subquery that the planner
	// cannot turn into a join, and by nothing but equality: a plan made for a small table stays good for a large one. (With first_t =
	// ANY($4) it may filter a whole epoch by that.)
	// $1 name, $2 instance, $3 epochs, $4 first ts; rows: in recovery, root, epoch, first t of a key that is missing, or nulls.
	fence = &statement{1, "stele_fence", `SELECT pg_is_in_recovery(), (SELECT bytes FROM stele.root WHERE name = $1::text), k.epoch, k.first_t
FROM (SELECT 1) one LEFT JOIN (
	SELECT k.epoch, k.first_t FROM unnest($3::bigint[], $4::bigint[]) AS k(epoch, first_t)
	WHERE (SELECT true FROM stele.log l WHERE l.db_id = $2::uuid AND l.epoch = k.epoch AND l.first_t = k.first_t) IS NULL
) k ON true`}

	// readRoot: $1 name; rows: in recovery, root or null, age in microseconds by the server's clock.
	readRoot = &statement{2, "stele_root", `SELECT pg_is_in_recovery(), r.bytes, (extract(epoch FROM clock_timestamp() - r.swapped_at) * 1000000)::bigint
FROM (SELECT 1) one LEFT JOIN stele.root r ON r.name = $1::text`}

	// createRoot: $1 name, $2 root; one row affected, or none: there is one.
	createRoot = &statement{3, "stele_create", `INSERT INTO stele.root (name, bytes, swapped_at)
SELECT $1::text, $2::bytea, clock_timestamp() FROM ` + durably + `
ON CONFLICT (name) DO NOTHING`}

	// swapRoot: $1 name, $2 old, $3 next; one row affected, or none: the root is not old.
	swapRoot = &statement{4, "stele_swap", `UPDATE stele.root SET bytes = $3::bytea, swapped_at = clock_timestamp() FROM ` + durably + `
WHERE name = $1::text AND bytes = $2::bytea`}

	// getObject: $1 instance, $2 epoch, $3 first t; one row: in recovery, hash, bytes, or nulls.
	getObject = &statement{5, "stele_get", `SELECT pg_is_in_recovery(), l.hash, l.payload
FROM (SELECT 1) one LEFT JOIN stele.log l ON l.db_id = $1::uuid AND l.epoch = $2::bigint AND l.first_t = $3::bigint`}

	// listKeys: $1 instance, $2 epoch, $3 first t, $4 how many; rows: in recovery, epoch, first t, or nulls. The join keeps the order of its
	// inner side, having one row outside; that is checked where the rows are read, and sorting a page again would cost more.
	listKeys = &statement{6, "stele_list", `SELECT pg_is_in_recovery(), p.epoch, p.first_t
FROM (SELECT 1) one LEFT JOIN (
	SELECT epoch, first_t FROM stele.log
	WHERE db_id = $1::uuid AND (epoch, first_t) > ($2::bigint, $3::bigint) ORDER BY epoch, first_t LIMIT $4::bigint
) p ON true`}

	// readPage: like listKeys, and $5 how many bytes: a row is there if those before it have fewer. The length of a value that is stored out
	// of line is known without reading it. Rows: in recovery, epoch, first t, hash, bytes, or nulls.
	readPage = &statement{7, "stele_read", `SELECT pg_is_in_recovery(), p.epoch, p.first_t, p.hash, p.payload
FROM (SELECT 1) one LEFT JOIN (
	SELECT epoch, first_t, hash, payload,
		sum(octet_length(payload)) OVER (ORDER BY epoch, first_t ROWS UNBOUNDED PRECEDING) - octet_length(payload) AS before
	FROM (
		SELECT epoch, first_t, hash, payload FROM stele.log
		WHERE db_id = $1::uuid AND (epoch, first_t) > ($2::bigint, $3::bigint) ORDER BY epoch, first_t LIMIT $4::bigint
	) q
) p ON p.before < $5::bigint`}

	// deleteObjects removes some of the objects at or below a key, the lowest: $1 instance, $2 epoch, $3 first t, $4 how many at most.
	deleteObjects = &statement{8, "stele_delete", `DELETE FROM stele.log WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM stele.log
	WHERE db_id = $1::uuid AND (epoch, first_t) <= ($2::bigint, $3::bigint) ORDER BY epoch, first_t LIMIT $4::bigint
))`}

	// putBlob writes a blob, or updates it to what it is, as insertObject does: $1 instance, $2 name, $3 bytes.
	putBlob = &statement{9, "stele_put_blob", `INSERT INTO stele.blob AS b (db_id, name, bytes)
SELECT $1::uuid, $2::text, $3::bytea FROM ` + durably + `
ON CONFLICT (db_id, name) DO UPDATE SET name = excluded.name`}

	// getBlob: $1 instance, $2 name; one row: in recovery, bytes or null.
	getBlob = &statement{10, "stele_get_blob", `SELECT pg_is_in_recovery(), b.bytes
FROM (SELECT 1) one LEFT JOIN stele.blob b ON b.db_id = $1::uuid AND b.name = $2::text`}

	// deleteBlobs removes some of an instance's blobs: $1 instance, $2 how many at most.
	deleteBlobs = &statement{11, "stele_delete_blobs", `DELETE FROM stele.blob WHERE ctid = ANY (ARRAY(SELECT ctid FROM stele.blob WHERE db_id = $1::uuid LIMIT $2::bigint))`}

	// settings of the server, and whether our tables are there.
	settings = &statement{12, "stele_settings", `SELECT current_setting('server_version_num'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
	current_setting('synchronous_standby_names'), (to_regclass('stele.meta') IS NOT NULL)::text, current_user::text, current_database()::text`}

	readVersion = &statement{13, "stele_version", `SELECT version::text FROM stele.meta`}
)
