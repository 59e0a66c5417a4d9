package main

import (
	"bytes"
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseFlags(t *testing.T) {
	defaults := func() settings {
		return settings{levels: []int{1, 4, 16, 64, 256}, duration: 5 * time.Second, shape: "insert", datoms: 2, rounds: 1}
	}
	for _, c := range []struct {
		args string
		want func(*settings)
	}{
		{"", func(*settings) {}},
		{"-store mem:x?delay=2ms", func(s *settings) { s.store = "mem:x?delay=2ms" }},
		{"-concurrency 1,256", func(s *settings) { s.levels = []int{1, 256} }},
		{"-duration 250ms", func(s *settings) { s.duration = 250 * time.Millisecond }},
		{"-transactions 1000", func(s *settings) { s.transactions = 1000 }},
		{"-datoms 1", func(s *settings) { s.datoms = 1 }},
		{"-shape update", func(s *settings) { s.shape, s.preload = "update", 100_000 }},
		{"-shape update -preload 10 -datoms 4", func(s *settings) { s.shape, s.preload, s.datoms = "update", 10, 4 }},
		{"-preload 10", func(s *settings) { s.preload = 10 }},
		{"-max-batch 64 -max-batch-bytes 65536 -depth 3", func(s *settings) { s.maxBatch, s.maxBatchSize, s.depth = 64, 65536, 3 }},
		{"-json -floor -rounds 3", func(s *settings) { s.json, s.floor, s.rounds = true, true, 3 }},
		{"-accept", func(s *settings) { s.accept, s.duration = true, 3*time.Second }},
		{"-accept -duration 1s -json", func(s *settings) { s.accept, s.duration, s.json = true, time.Second, true }},
		{"-concurrency 8 -cpuprofile x.prof", func(s *settings) { s.levels, s.cpuProfile = []int{8}, "x.prof" }},
	} {
		var stderr bytes.Buffer
		got, err := parseFlags(strings.Fields(c.args), &stderr)
		if err != nil {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		want := defaults()
		c.want(&want)
		if !slices.Equal(got.levels, want.levels) {
			t.Errorf("%q: levels %v, want %v", c.args, got.levels, want.levels)
		}
		got.levels, want.levels = nil, nil
		if g, w := *got, want; !equalSettings(g, w) {
			t.Errorf("%q: %+v, want %+v", c.args, g, w)
		}
		if stderr.Len() > 0 {
			t.Errorf("%q prints %q", c.args, stderr.String())
		}
	}
}

// equalSettings compares all but the levels.
func equalSettings(a, b settings) bool {
	a.levels, b.levels = nil, nil
	return a.store == b.store && a.duration == b.duration && a.transactions == b.transactions && a.shape == b.shape &&
		a.datoms == b.datoms && a.preload == b.preload && a.maxBatch == b.maxBatch && a.maxBatchSize == b.maxBatchSize &&
		a.depth == b.depth && a.json == b.json && a.floor == b.floor && a.rounds == b.rounds && a.accept == b.accept &&
		a.cpuProfile == b.cpuProfile && a.delay == b.delay && a.pressure == b.pressure
}

func TestParseFlagsRefuses(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-concurrency 0", `-concurrency is "0"; it must be numbers from 1 to 10000 with commas between`},
		{"-concurrency 1,,2", `-concurrency is "1,,2"`},
		{"-concurrency x", `-concurrency is "x"`},
		{"-concurrency 10001", `-concurrency is "10001"`},
		{"-duration 0s", "-duration is 0s; it must be above 0 and at most 1h0m0s"},
		{"-duration 2h", "-duration is 2h0m0s"},
		{"-duration x", "invalid value"},
		{"-transactions 0", "-transactions is 0; it must be from 1 to "},
		{"-transactions 5 -duration 1s", "-duration and -transactions exclude one another"},
		{"-datoms 0", "-datoms is 0; it must be from 1 to 1000"},
		{"-datoms 3 -shape update", "-datoms is 3; an update of a text is two datoms, so it must be even"},
		{"-shape upsert", `-shape is "upsert"; it must be insert or update`},
		{"-shape update -preload 0", "-preload is 0; updates need entities to update"},
		{"-preload -1", "-preload is -1"},
		{"-max-batch 0", "-max-batch is 0"},
		{"-max-batch-bytes 0", "-max-batch-bytes is 0"},
		{"-depth 0", "-depth is 0"},
		{"-rounds 0", "-rounds is 0"},
		{"-rounds 99 -concurrency 1,2,3,4,5,6,7,8,9,10,11", "make 1089 levels; at most 1000 are possible"},
		{"-cpuprofile x", "-cpuprofile profiles one loop"},
		{"-cpuprofile x -concurrency 1 -rounds 2", "-cpuprofile profiles one loop"},
		{"-accept -store mem:x", "-accept measures mem and a local disk by itself"},
		{"-accept -depth 2", "-accept measures what it must, and takes no -depth"},
		{"-pressure -depth 2", "-pressure measures what it must, and takes no -depth"},
		{"-delay 5ms -store mem:x", "-delay is for a store behind a network"},
		{"-delay 2s -store s3://b", "-delay is 2s; it must be from 0 to 1s"},
		{"extra", `"extra" is not a flag`},
		{"-nonsense", "flag provided but not defined"},
		{"-rounds 0 -depth 0", "-depth is 0"}, // everything at once
	} {
		var stdout, stderr bytes.Buffer
		if status := run(t.Context(), strings.Fields(c.args), &stdout, &stderr); status != 2 {
			t.Errorf("%q: status %d", c.args, status)
		}
		if !strings.Contains(stderr.String(), c.want) || !strings.Contains(stderr.String(), "usage: tx_throughput [flags]") {
			t.Errorf("%q prints\n%s\nwithout %q or the usage", c.args, stderr.String(), c.want)
		}
		if stdout.Len() > 0 {
			t.Errorf("%q prints %q on stdout", c.args, stdout.String())
		}
	}
}

func TestHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if status := run(t.Context(), []string{"-h"}, &stdout, &stderr); status != 0 || !strings.Contains(stderr.String(), "-max-batch-bytes") {
		t.Errorf("status %d, %s", status, stderr.String())
	}
	if _, err := parseFlags([]string{"-help"}, &stderr); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
}
