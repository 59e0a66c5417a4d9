package s3_test

import (
	"testing"

	"github.com/steledb/stele/log"
	"github.com/steledb/stele/log/logtest"
	"github.com/steledb/stele/log/s3"
)

func TestConformance(t *testing.T) {
	for _, client := range clients {
		t.Run(client, func(t *testing.T) {
			logtest.Run(t, logtest.Backend{
				Name:   "s3 (" + client + ")",
				Server: servers.S3Server,
				New: func(t *testing.T) func() log.Log {
					o := place(t, client)
					return func() log.Log {
						l, err := s3.Open(t.Context(), o)
						if err != nil {
							t.Fatal(err)
						}
						return l
					}
				},
			})
		})
	}
}
