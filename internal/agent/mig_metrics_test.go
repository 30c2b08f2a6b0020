package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/exposition"
)

// scraped are the samples of a metric as an endpoint answers them, with the labels that are asked for.
func scraped(t *testing.T, url, metric string, labels ...string) (all []string) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", answer.Status, err, text)
	}
	for line := range strings.Lines(string(text)) {
		rest, found := strings.CutPrefix(line, metric+"{")
		if !found {
			continue
		}
		told, value, _ := strings.Cut(strings.TrimSpace(rest), "} ")
		sample := ""
		for label := range strings.SplitSeq(told, ",") {
			if name, content, _ := strings.Cut(label, "="); slices.Contains(labels, name) {
				sample += strings.Trim(content, `"`) + " "
			}
		}
		all = append(all, sample+value)
	}
	slices.Sort(all)
	return all
}

// Whoever scrapes the agent finds each instance with its place, whose it is and how many have shares on it, until it ends.
func TestInstancesAreScraped(t *testing.T) {
	q := newQuarry(t)
	foreign := q.mig.Foreign(t, firstID, "1g.10gb", 6)
	r := q.run("")
	ctx, cancel := context.WithCancel(t.Context())
	listener, err := exposition.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	shown := exposition.New(exposition.Config{Source: r.Agent, Version: "v0", Log: slog.New(slog.DiscardHandler)})
	ended := make(chan error, 1)
	go func() { ended <- exposition.Serve(ctx, listener, exposition.Handler(exposition.Probes{}, shown)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	url := fmt.Sprintf("http://%s/metrics", listener.Addr())
	whole, part, another := q.asker(os.Getuid()), q.asker(os.Getuid()), q.asker(os.Getuid())
	own := q.grant(r, whole, instanceOf("3g.40gb")).Tenant.Shares[0].Instance
	shared := q.grant(r, part, within("2g.20gb", "slice", 4*gib)).Tenant.Shares[0].Instance
	q.grant(r, another, within("2g.20gb", "slice", 4*gib))
	tells := func(metric string, labels []string, want ...string) {
		t.Helper()
		slices.Sort(want)
		// One answer serves all scrapes of a second.
		eventually(t, fmt.Sprintf("%s is %q", metric, want), func() bool { return slices.Equal(scraped(t, url, metric, labels...), want) })
	}
	place := func(profile string, start int) string { return fmt.Sprintf("%s %d", profile, start) }
	tells("divvy_instance_info", []string{"origin", "profile", "start"},
		place("1g.10gb", 6)+" foreign 1", place("3g.40gb", own.Start)+" share 1", place("2g.20gb", shared.Start)+" share 1")
	tells("divvy_instance_tenants", []string{"profile"}, "1g.10gb 0", "3g.40gb 1", "2g.20gb 2")
	tells("divvy_instance_memory_capacity_bytes", []string{"instance_uuid"},
		fmt.Sprintf("%s %g", own.UUID, float64(own.Bytes)), fmt.Sprintf("%s %g", shared.UUID, float64(shared.Bytes)),
		fmt.Sprintf("%s %g", foreign.UUID, float64(foreign.Bytes)))
	whole.end()
	q.becomes("2g.20gb@"+fmt.Sprint(shared.Start)+" share", "1g.10gb@6 foreign")
	tells("divvy_instance_tenants", []string{"profile"}, "1g.10gb 0", "2g.20gb 2")
}
