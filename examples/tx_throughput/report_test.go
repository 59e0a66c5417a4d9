package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	r := &result{
		Concurrency: 256, Transactions: 1234567, TxPerSec: 98765.4, DatomsPerSec: 197530.8,
		P50: 812.3, P90: 1499.9, P99: 12345, Max: 2.5e6, BatchMean: 127.96, BatchPeak: 256,
		Objects: 9648, Fences: 9650, InFlightPeak: 2, Errors: 1,
	}
	var out bytes.Buffer
	tb := &table{w: &out}
	tb.row(r)
	tb.row(&result{Concurrency: 1})
	want := "" +
		"clients       tx/s     datoms/s       p50       p90       p99       max    batch   peak    objects     fences  flying  errors\n" +
		"    256     98,765      197,531    812 µs   1.50 ms   12.3 ms    2.50 s    128.0    256      9,648      9,650       2       1\n" +
		"      1          0            0   0.00 µs   0.00 µs   0.00 µs   0.00 µs      0.0      0          0          0       0       0\n"
	if out.String() != want {
		t.Errorf("\n%s\nwant\n%s", out.String(), want)
	}

	out.Reset()
	r.Floor = &floorResult{BareTxPerSec: 200000, BareP50: 400, InlineTxPerSec: 150000}
	(&table{w: &out, floor: true}).row(r)
	if !strings.Contains(out.String(), "bare tx/s       p50  inline tx/s\n") || !strings.HasSuffix(out.String(), "    200,000    400 µs      150,000\n") {
		t.Error(out.String())
	}
}

// TestJSON: these names are promised.
func TestJSON(t *testing.T) {
	var out bytes.Buffer
	if err := printJSON(&out, &result{Store: "mem:x?delay=2ms&db=y", P50: 1.5}); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), `"store":"mem:x?delay=2ms&db=y"`) {
		t.Errorf("not one plain line: %s", out.String())
	}
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"store", "durable", "concurrency", "transactions", "seconds", "tx_per_sec", "datoms_per_sec", "p50_us", "p90_us", "p99_us",
		"max_us", "batch_mean", "batch_peak", "objects", "fences", "inflight_peak", "errors",
	} {
		if _, ok := got[name]; !ok {
			t.Errorf("there is no %q", name)
		}
	}
	if _, ok := got["floor"]; ok {
		t.Error("a floor where none was measured")
	}
}

func TestMedians(t *testing.T) {
	rs := []*result{
		{Concurrency: 4, TxPerSec: 30, P50: 1, Objects: 7, Errors: 1, Floor: &floorResult{BareTxPerSec: 5}},
		{Concurrency: 4, TxPerSec: 10, P50: 3, Objects: 9, Floor: &floorResult{BareTxPerSec: 7}},
		{Concurrency: 4, TxPerSec: 20, P50: 9, Objects: 8, Errors: 2, Floor: &floorResult{BareTxPerSec: 6}},
	}
	m := medians(rs)
	if m.Concurrency != 4 || m.TxPerSec != 20 || m.P50 != 3 || m.Objects != 8 || m.Errors != 3 || m.Rounds != 3 || m.Floor.BareTxPerSec != 6 {
		t.Errorf("%+v, floor %+v", m, m.Floor)
	}
	if rs[0].TxPerSec != 30 || rs[0].Floor.BareTxPerSec != 5 {
		t.Error("the first result was changed")
	}
	if m := medians(rs[:2]); m.TxPerSec != 20 {
		t.Errorf("of two: %v", m.TxPerSec)
	}
	rs[0].Floor = nil // interrupted
	if m := medians(rs); m.Floor == nil || m.Floor.BareTxPerSec != 6.5 {
		t.Errorf("floor %+v", m.Floor)
	}
}

// TestMediansAreOfEveryNumber: a number that is added to a result must not be forgotten.
func TestMediansAreOfEveryNumber(t *testing.T) {
	same := map[string]bool{"CPUs": true, "Datoms": true, "Preload": true, "Depth": true, "MaxBatch": true, "Concurrency": true, "Rounds": true, "Errors": true,
		"FenceP50": true, "SyncTime": true}
	number := func(v float64) *result {
		r := &result{}
		e := reflect.ValueOf(r).Elem()
		for i := range e.NumField() {
			switch f := e.Field(i); f.Kind() {
			case reflect.Float64:
				f.SetFloat(v)
			case reflect.Int64:
				f.SetInt(int64(v))
			}
		}
		return r
	}
	m := reflect.ValueOf(medians([]*result{number(9), number(1), number(5)})).Elem()
	for i := range m.NumField() {
		name := m.Type().Field(i).Name
		switch f := m.Field(i); {
		case same[name]:
		case f.Kind() == reflect.Float64 && f.Float() != 5, f.Kind() == reflect.Int64 && f.Int() != 5:
			t.Errorf("%s is no median", name)
		}
	}
}

func TestSpanAndGrouped(t *testing.T) {
	for us, want := range map[float64]string{
		0: "0.00 µs", 0.5: "0.50 µs", 9.994: "9.99 µs", 12.34: "12.3 µs", 999: "999 µs", 1000: "1.00 ms", 45678: "45.7 ms", 1e6: "1.00 s", 3.6e9: "3600 s",
	} {
		if got := span(us); got != want {
			t.Errorf("span(%v) is %q, want %q", us, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		if got := grouped(n); got != want {
			t.Errorf("grouped(%d) is %q, want %q", n, got, want)
		}
	}
}

// TestLatenciesAreNotClamped: what the histogram cannot hold is an error, and what it holds it tells to three digits.
func TestLatenciesAreNotClamped(t *testing.T) {
	of := func(d time.Duration) *loop {
		c := &client{}
		c.acks.add(ack{1, d})
		return &loop{clients: []*client{c}}
	}
	h, err := of(23 * time.Hour).latencies()
	if err != nil {
		t.Fatal(err)
	}
	if got := micros(h.Max()) / 1e6 / 3600; got < 22.97 || got > 23.03 {
		t.Errorf("23 hours are told as %v", got)
	}
	if _, err := of(72 * time.Hour).latencies(); err == nil || !strings.Contains(err.Error(), "72h0m0s") {
		t.Errorf("72 hours: %v", err)
	}
	lost := of(time.Second)
	lost.clients[0].acks.add(ack{0, time.Minute}) // not acknowledged
	if h, err := lost.latencies(); err != nil || h.TotalCount() != 1 {
		t.Errorf("%d latencies, %v", h.TotalCount(), err)
	}
}

func TestRatios(t *testing.T) {
	m := &measured{
		delayed1: &result{P50: 4400, TxPerSec: 220}, delayed256: &result{P50: 9000, TxPerSec: 22000},
		mem256: &result{TxPerSec: 100000}, fs256: &result{TxPerSec: 50000}, sync: 2000, // 64,000 per second
	}
	rs := m.ratios()
	for i, want := range []float64{1.1, 100, 9000.0 / 4400, 50000.0 / 64000} {
		if got := rs[i].Value; got < want*0.999 || got > want*1.001 || !rs[i].Holds {
			t.Errorf("%+v, want %v", rs[i], want)
		}
	}
	m.delayed1.P50 = 4900          // 1.225 of two calls
	m.delayed256.TxPerSec = 10_000 // 45 times
	m.delayed256.P50 = 15_000      // 3.06 times
	m.fs256.TxPerSec = 38_000      // 0.59 of what the disk allows
	for _, r := range m.ratios() {
		if r.Holds {
			t.Errorf("%+v holds", r)
		}
	}
	m.sync, m.fs256.TxPerSec = 100, 61_000 // now mem is the smaller
	if r := m.ratios()[3]; !r.Holds || r.Value != 0.61 {
		t.Errorf("%+v", r)
	}
}

func TestDiskDir(t *testing.T) {
	durable := func(d string) (bool, string, error) {
		switch d {
		case "/tmp":
			return false, "tmpfs", nil
		case "/broken":
			return false, "", errors.New("no such device")
		}
		return true, "ext4", nil
	}
	dir, note, err := diskDir([]string{"/tmp", "/home"}, durable)
	if err != nil || dir != "/home" || !strings.Contains(note, "ext4") || !strings.Contains(note, "/tmp is on tmpfs, which keeps nothing") {
		t.Errorf("%q %q %v", dir, note, err)
	}
	if dir, note, err := diskDir([]string{"/home", "/tmp"}, durable); err != nil || dir != "/home" || strings.Contains(note, "tmpfs") {
		t.Errorf("%q %q %v", dir, note, err)
	}
	if _, _, err := diskDir([]string{"/tmp", "/broken"}, durable); err == nil || !strings.Contains(err.Error(), "tmpfs") || !strings.Contains(err.Error(), "-store fs:DIR") {
		t.Error(err)
	}
}
