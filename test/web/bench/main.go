// Command bench measures the web page of a large cluster in Debian's Chromium, and merges the figures into
// docs/measurements/ops.json.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/divvy-gpu/divvy/internal/overview"
	"github.com/divvy-gpu/divvy/internal/webpage"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/web/browser"
	"github.com/divvy-gpu/divvy/test/web/pages"
)

const (
	paintID = "ops.page_paint_ms"
	sizeID  = "ops.page_kib"
	faultID = "ops.page_faults"

	nodes = 1000
	runs  = 7
)

func main() {
	root := flag.String("root", ".", "the repository's root")
	out := flag.String("out", "docs/measurements/ops.json", "file to merge the figures into")
	only := flag.String("only", "", "measure only the figures whose ids begin so")
	flag.Parse()
	figures := func(ctx context.Context) []measurement.Figure {
		return []measurement.Figure{{IDs: paintID + " " + sizeID + " " + faultID, Measure: func() ([]measurement.Row, error) { return measure(ctx, *root) }}}
	}
	if err := measurement.Run(figures, *only, *out, false); err != nil {
		fmt.Fprintln(os.Stderr, "bench web:", err)
		os.Exit(1)
	}
}

// measure opens the page of a cluster with an empty cache, again and again, and looks for what keeps people from reading it.
func measure(ctx context.Context, root string) ([]measurement.Row, error) {
	b, err := browser.Start(ctx, root)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	cluster, machine := pages.Cluster(nodes), pages.Machine()
	large, err := pages.Serve(ctx, "127.0.0.1:0", webpage.Config{Of: "the cluster", Cluster: true, Every: time.Second}, func() *overview.Overview { return cluster })
	if err != nil {
		return nil, err
	}
	defer func() { _ = large.Close() }() // the figures are taken
	small, err := pages.Serve(ctx, "127.0.0.1:0", webpage.Config{Of: "gpu1", Every: time.Second}, func() *overview.Overview { return machine })
	if err != nil {
		return nil, err
	}
	defer func() { _ = small.Close() }()
	var paints []float64
	for range runs {
		// A new server has rendered nothing yet.
		first, err := pages.Serve(ctx, "127.0.0.1:0", webpage.Config{Of: "the cluster", Cluster: true, Every: time.Second}, func() *overview.Overview { return cluster })
		if err != nil {
			return nil, err
		}
		paint, err := paintOf(b, first.Address) //nolint:contextcheck // a tab has the context of its browser
		if err := errors.Join(err, first.Close()); err != nil {
			return nil, err
		}
		paints = append(paints, paint)
	}
	size, err := sizeOf(ctx, large.Address)
	if err != nil {
		return nil, err
	}
	faults, err := faultsOf(b, large.Address, large.Address+"node/gpu-node-0000", small.Address)
	if err != nil {
		return nil, err
	}
	row := func(id, unit string, goal float64, note string, values ...float64) measurement.Row {
		r := measurement.Of(id, unit, goal, measurement.Lower, "make bench-ops ONLY="+id, values...)
		r.Case, r.Note = fmt.Sprintf("%d nodes with 8 GPUs each, empty cache", nodes), note
		return r
	}
	return []measurement.Row{
		row(paintID, "ms", 300, "until the largest content is painted and the document is read, rendered for it, in Chromium without a GPU", paints...),
		row(sizeID, "KiB", 100, "the page, its style, script and icon, compressed", float64(size)/1024),
		row(faultID, "violations", 0, "axe-core's, light and dark: the cluster, a node, a server of 140 shares with all details open", float64(faults)),
	}, nil
}

// paintOf is how long it takes from the request until the page is painted, in milliseconds.
func paintOf(b *browser.Browser, address string) (float64, error) {
	tab, closeTab := chromedp.NewContext(b.Context)
	defer closeTab()
	var paint float64
	err := chromedp.Run(tab, network.ClearBrowserCache(), network.SetCacheDisabled(true), chromedp.EmulateViewport(1280, 900), chromedp.Navigate(address), chromedp.WaitReady("footer"),
		chromedp.Evaluate(`new Promise(done => new PerformanceObserver(list => {
			const first = performance.getEntriesByName("first-contentful-paint")[0].startTime;
			const read = performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd;
			done(Math.max(first, read, ...list.getEntries().map(e => e.startTime)));
		}).observe({type: "largest-contentful-paint", buffered: true}))`, &paint, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	if err != nil {
		return 0, fmt.Errorf("open the page: %w", err)
	}
	return paint, nil
}

// sizeOf is how many bytes all files of a page have, compressed.
func sizeOf(ctx context.Context, address string) (int, error) {
	sum := 0
	for _, path := range []string{"", "style.css", "script.js", "icon.svg"} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+path, http.NoBody)
		if err != nil {
			return 0, fmt.Errorf("ask for the page: %w", err)
		}
		r.Header.Set("Accept-Encoding", "gzip")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, fmt.Errorf("ask for the page: %w", err)
		}
		n, err := io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Encoding") != "gzip" {
			return 0, fmt.Errorf("ask for %s: %s: %w", path, answer.Status, err)
		}
		sum += int(n)
	}
	return sum, nil
}

// faultsOf counts what axe-core finds on pages, light and dark.
func faultsOf(b *browser.Browser, addresses ...string) (int, error) {
	faults := 0
	for _, address := range addresses {
		for _, scheme := range []string{"light", "dark"} {
			if err := chromedp.Run(b.Context, browser.Scheme(scheme), chromedp.Navigate(address), chromedp.WaitReady("footer")); err != nil {
				return 0, fmt.Errorf("open the page: %w", err)
			}
			found, err := b.Violations(b.Context)
			if err != nil {
				return 0, err
			}
			faults += len(found)
		}
	}
	return faults, nil
}
