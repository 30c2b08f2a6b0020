package web

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/divvy-gpu/divvy/internal/overview"
	"github.com/divvy-gpu/divvy/internal/webpage"
	"github.com/divvy-gpu/divvy/test/web/browser"
	"github.com/divvy-gpu/divvy/test/web/pages"
)

const root = "../.."

// longest bounds every wait for something that takes milliseconds, on a busy machine.
const longest = 90 * time.Second

var started struct {
	sync.Once
	browser *browser.Browser
	fault   error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if started.browser != nil {
		started.browser.Close()
	}
	os.Exit(code)
}

// open is a tab of the browser that all tests share. What a page violates or throws fails the test.
func open(t *testing.T) context.Context {
	t.Helper()
	tab := tabOf(t)
	var mu sync.Mutex
	var wrong []string
	chromedp.ListenTarget(tab, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError && e.Entry.Source != log.SourceNetwork {
				wrong = append(wrong, e.Entry.Text)
			}
		case *runtime.EventExceptionThrown:
			wrong = append(wrong, e.ExceptionDetails.Error())
		}
	})
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if len(wrong) > 0 {
			t.Errorf("the page says: %s", wrong)
		}
	})
	return tab
}

func tabOf(t *testing.T) context.Context {
	t.Helper()
	started.Do(func() { started.browser, started.fault = browser.Start(context.Background(), root) })
	if err := started.fault; err != nil {
		if strings.Contains(os.Getenv("DIVVY_REQUIRE"), "chromium") || !errors.Is(err, browser.ErrMissing) {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	tab, closeTab := chromedp.NewContext(started.browser.Context)
	bounded, cancel := context.WithTimeout(tab, longest)
	t.Cleanup(func() { cancel(); closeTab() })
	run(t, bounded, chromedp.EmulateViewport(1280, 900))
	return bounded
}

func run(t *testing.T, ctx context.Context, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// until waits until an expression is true in the page.
func until(t *testing.T, ctx context.Context, expression string) {
	t.Helper()
	if err := chromedp.Run(ctx, chromedp.Poll(expression, nil, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(longest))); err != nil {
		var page string
		_ = chromedp.Run(ctx, chromedp.Evaluate(`document.body.innerText.slice(0, 600)`, &page))
		t.Fatalf("it did not happen that %s: %v: %s", expression, err, page)
	}
}

// shown is what pages show, and can be changed.
type shown struct {
	atomic.Pointer[overview.Overview]
}

func serve(t *testing.T, address string, c webpage.Config, now *shown) *pages.Served {
	t.Helper()
	s, err := pages.Serve(t.Context(), address, c, now.Load)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func machine(t *testing.T) (string, *shown) {
	now := &shown{}
	now.Store(pages.Machine())
	return serve(t, "127.0.0.1:0", webpage.Config{Of: "gpu1", Every: 50 * time.Millisecond}, now).Address, now
}

func TestEverybodyCanReadThePages(t *testing.T) {
	tab := open(t)
	server, _ := machine(t)
	all, none := &shown{}, &shown{}
	all.Store(pages.Cluster(20))
	empty := overview.New(time.Now())
	empty.Nodes, empty.Hidden = nil, "You may see nothing without a token."
	none.Store(empty)
	cluster := serve(t, "127.0.0.1:0", webpage.Config{Of: "the cluster", Cluster: true, Every: time.Second}, all).Address
	form := serve(t, "127.0.0.1:0", webpage.Config{Of: "the cluster", Cluster: true, Form: true, Every: time.Second}, none).Address
	for name, address := range map[string]string{"machine": server, "cluster": cluster, "node": cluster + "node/gpu-node-0000", "missing": cluster + "node/none", "form": form} {
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{1280, 360} {
				run(t, tab, chromedp.EmulateViewport(width, 800), browser.Scheme(scheme), chromedp.Navigate(address), chromedp.WaitReady("main"))
				found, err := started.browser.Violations(tab)
				if err != nil {
					t.Fatal(err)
				}
				for _, v := range found {
					t.Errorf("%s, %s, %d wide: %s: %s: %v", name, scheme, width, v.ID, v.Help, v.Nodes)
				}
				if width == 1280 {
					if err := browser.Picture(tab, filepath.Join(root, "build/web", name+"-"+scheme+".png")); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}

func TestKeys(t *testing.T) {
	tab := open(t)
	address, _ := machine(t)
	run(t, tab, chromedp.Navigate(address), chromedp.KeyEvent(kb.Tab))
	until(t, tab, `document.activeElement.className === "skip"`)
	run(t, tab, chromedp.KeyEvent(kb.Enter))
	until(t, tab, `document.activeElement.id === "content"`)
	for range 3 { // the table of GPUs, then the first details
		run(t, tab, chromedp.KeyEvent(kb.Tab))
		var on string
		run(t, tab, chromedp.Evaluate(`document.activeElement.tagName`, &on))
		if on == "SUMMARY" {
			break
		}
	}
	until(t, tab, `document.activeElement.tagName === "SUMMARY" && document.getElementById("gpu-0").open`)
	run(t, tab, chromedp.KeyEvent(kb.Enter))
	until(t, tab, `!document.getElementById("gpu-0").open`)
}

func TestChangesComeAndLeaveThePersonAlone(t *testing.T) {
	tab := open(t)
	address, now := machine(t)
	run(t, tab, chromedp.Navigate(address), chromedp.Evaluate(`document.querySelector("#gpu-1 summary").focus(); document.getElementById("gpu-1").open = false; window.kept = document.querySelector("#gpu-1")`, nil))
	other := pages.Machine()
	other.Nodes[0].GPUs[0].Shares[0].Name = "renamed"
	other.Nodes[0].GPUs[1].Shares = other.Nodes[0].GPUs[1].Shares[:5]
	other.Nodes[0].GPUs[7].Fault, other.Nodes[0].GPUs[0].Shares = "", other.Nodes[0].GPUs[0].Shares[:1]
	other.Nodes[0].Notes = append(other.Nodes[0].Notes, "another note")
	now.Store(other)
	until(t, tab, `document.body.innerText.includes("renamed")`)
	until(t, tab, `document.querySelectorAll("#gpu-1 tbody tr").length === 5 && !document.body.innerText.includes("XID 79")`)
	until(t, tab, `!document.getElementById("gpu-1").open && window.kept === document.activeElement.parentElement && document.getElementById("status").textContent === ""`)
}

func TestThePageIsWholeWithoutScript(t *testing.T) {
	tab := open(t)
	address, _ := machine(t)
	run(t, tab, emulation.SetScriptExecutionDisabled(true), chromedp.Navigate(address), chromedp.WaitVisible("noscript"), chromedp.WaitVisible("#gpu-6 table"))
	if err := browser.Picture(tab, filepath.Join(root, "build/web/no-script.png")); err != nil {
		t.Fatal(err)
	}
}

func TestThePageSaysWhenTheAgentIsAway(t *testing.T) {
	tab := open(t)
	now := &shown{}
	now.Store(pages.Machine())
	config := webpage.Config{Of: "gpu1", Every: 50 * time.Millisecond}
	first := serve(t, "127.0.0.1:0", config, now)
	run(t, tab, chromedp.Navigate(first.Address), chromedp.WaitReady("main"))
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, tab, `document.getElementById("status").textContent.startsWith("The connection is lost; trying again. What you see is of ")`)
	other := pages.Machine()
	other.Nodes[0].Notes = []string{"I am the next agent"}
	now.Store(other)
	serve(t, strings.TrimSuffix(strings.TrimPrefix(first.Address, "http://"), "/"), config, now)
	until(t, tab, `document.getElementById("status").textContent === "Connected again." && document.body.innerText.includes("I am the next agent")`)
	until(t, tab, `document.getElementById("status").textContent === ""`)
}

func TestHostileNamesRunNothing(t *testing.T) {
	tab := open(t)
	o := pages.Machine()
	evil := `"><img src=x onerror="window.owned=1"><script>window.owned=1</script>`
	o.Hidden, o.Waiting[0].Reason, o.Nodes[0].GPUs[0].Model, o.Nodes[0].Outside[0].Command = evil, evil, evil, evil
	o.Nodes[0].GPUs[0].Shares[0].Name, o.Nodes[0].GPUs[0].Shares[0].Command, o.Nodes[0].GPUs[0].Fault = evil, evil, evil
	now := &shown{}
	now.Store(pages.Machine())
	address := serve(t, "127.0.0.1:0", webpage.Config{Of: evil, Every: 50 * time.Millisecond}, now).Address
	run(t, tab, chromedp.Navigate(address), chromedp.WaitReady("main"))
	now.Store(o) // by the script, too
	until(t, tab, `document.body.innerText.includes("onerror") && window.owned === undefined && document.images.length === 0`)
	run(t, tab, chromedp.Navigate(address), chromedp.WaitReady("main"))
	until(t, tab, `document.body.innerText.includes("onerror") && window.owned === undefined && document.images.length === 0`)
}

// TestThePolicyHolds has a page try what its policy forbids, so that the other tests know that a violation is heard.
func TestThePolicyHolds(t *testing.T) {
	tab := tabOf(t)
	address, _ := machine(t)
	run(t, tab, chromedp.Navigate(address), chromedp.WaitReady("main"), chromedp.Evaluate(`
		window.heard = [];
		document.addEventListener("securitypolicyviolation", e => window.heard.push(e.effectiveDirective));
		const script = document.createElement("script"); script.textContent = "window.ran = 1"; document.body.append(script);
		document.body.append(Object.assign(document.createElement("img"), {src: "http://127.0.0.1:1/x.png"}));
		fetch("http://127.0.0.1:1/").catch(() => {});
		document.body.setAttribute("style", "color: red");`, nil))
	until(t, tab, `["script-src-elem", "img-src", "connect-src", "style-src-attr"].every(d => window.heard.includes(d)) && window.ran === undefined`)
}
