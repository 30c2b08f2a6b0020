package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	scrapeID   = "ops.scrape_ms"
	scrapeGoal = 20
	// scrapeEvery is more than the agent's second, for which a listing serves all scrapes.
	scrapeEvery = 1100 * time.Millisecond
)

// measureScrapes reads an agent's metrics as Prometheus does, and takes the 99th percentile of how long that takes, from
// the request to the last byte.
func measureScrapes(ctx context.Context, o options) ([]measurement.Row, error) {
	shares, scrapes, runs := 200, 100, 3
	if o.quick {
		shares, scrapes, runs = 16, 10, 1
	}
	s, err := openServed(ctx, o.build, shares)
	if err != nil {
		return nil, err
	}
	var p99, middle []float64
	size := 0
	for range runs {
		var took []float64
		for range scrapes {
			if err = s.machine.Pause(scrapeEvery); err != nil {
				break
			}
			var one time.Duration
			if one, size, err = s.scrape(ctx); err != nil {
				break
			}
			took = append(took, float64(one.Microseconds())/1000)
		}
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		slices.Sort(took)
		p99 = append(p99, took[(len(took)*99+99)/100-1])
		middle = append(middle, took[len(took)/2])
	}
	if err := s.close(); err != nil {
		return nil, err
	}
	row := measurement.Of(scrapeID, "ms", scrapeGoal, measurement.Lower, "make bench-ops ONLY="+scrapeID, p99...)
	row.Case = fmt.Sprintf("p99, %d shares on %d GPUs", shares, gpus)
	half, _ := measurement.Summary(middle, measurement.Lower)
	row.Note = fmt.Sprintf("p99 of %d scrapes, half of them took %.1f ms; an answer has %d KiB", scrapes, half, size>>10)
	return []measurement.Row{row}, nil
}

// scrape asks once. An answer without all shares is an error.
func (s *served) scrape(ctx context.Context) (took time.Duration, size int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/metrics", http.NoBody)
	if err != nil {
		return 0, 0, err
	}
	request.Header.Set("Accept-Encoding", "gzip") // as Prometheus does
	begin := time.Now()
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, 0, fmt.Errorf("scrape the agent: %w", err)
	}
	text, err := io.ReadAll(answer.Body)
	took = time.Since(begin)
	err = errors.Join(err, answer.Body.Close())
	if found := bytes.Count(text, []byte("\ndivvy_share_info{")); err != nil || found != s.shares {
		return 0, 0, fmt.Errorf("scrape the agent: %s: %d of %d shares: %w", answer.Status, found, s.shares, err)
	}
	return took, len(text), nil
}
