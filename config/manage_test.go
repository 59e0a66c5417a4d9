package config_test

import (
	"errors"
	"testing"

	"github.com/steledb/stele/config"
	"github.com/steledb/stele/log"
	"github.com/steledb/stele/transactor"
)

// TestManage: a database is copied from one store to another, deleted, and made anew.
func TestManage(t *testing.T) {
	from, to := "mem:"+t.Name(), "fs:"+diskTemp(t)
	ctx := t.Context()
	x := open(t, from)
	document(t, x, "one")
	if err := config.Copy(ctx, from, to, log.CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := config.Copy(ctx, from, to, log.CopyOptions{}); !errors.Is(err, log.ErrExists) {
		t.Errorf("a copy over a database: %v", err)
	}
	if err := config.Delete(ctx, from, log.DeleteOptions{}); !errors.Is(err, log.ErrOwned) {
		t.Errorf("a database with an owner is deleted: %v", err)
	}
	if err := x.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := config.Delete(ctx, from, log.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Open(ctx, from, quiet()); !errors.Is(err, transactor.ErrDeleted) {
		t.Errorf("a deleted database is opened: %v", err)
	}
	if err := config.Create(ctx, from); err != nil {
		t.Fatal(err)
	}
	if err := config.Create(ctx, from); !errors.Is(err, log.ErrExists) {
		t.Errorf("created twice: %v", err)
	}
	if got := docs(open(t, from).DB()); got != "" {
		t.Errorf("the new database holds %q", got)
	}
	y := open(t, to)
	document(t, y, "two")
	if got := docs(y.DB()); got != "one two" {
		t.Errorf("the copy holds %q", got)
	}
	if err := config.Delete(ctx, "nonsense:", log.DeleteOptions{}); err == nil {
		t.Error("nonsense is deleted")
	}
}
