package pg

import (
	"context"

	"github.com/steledb/stele/log"
)

// insertPlainly is the INSERT that a program without a library would write.
// $1 instance, $2 epoch, $3 first t, $4 hash, $5 bytes.
var insertPlainly = &statement{14, "stele_plain", `INSERT INTO stele.log (db_id, epoch, first_t, hash, payload) VALUES ($1::uuid, $2::bigint, $3::bigint, $4::bytea, $5::bytea)`}

// Plain writes an object by the simplest statement there is: create-only, but neither idempotent nor durable beyond what the session says. It is not part
// of log.Log; what measures the library compares it with this.
func (l *Log) Plain(ctx context.Context, inst log.ID, o *log.Object) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.calls.Done()
	in, err := newInsertion(&inst, o)
	if err != nil {
		return err
	}
	in.stmt = insertPlainly
	sent, err := l.flushes.do(ctx, &in.request)
	if in.err == nil {
		in.err = err
	}
	return l.appended(ctx, inst, in, sent)
}
