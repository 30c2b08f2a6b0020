// Package browser starts Debian's Chromium, unpacked by hack/chromium.sh, for tests and measurements of web pages.
package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Folder is where hack/chromium.sh unpacks, below the repository's root.
const Folder = ".cache/chromium"

// ErrMissing is returned where there is no Chromium.
var ErrMissing = errors.New("there is no Chromium: run hack/chromium.sh " + Folder)

// Browser is one that runs.
type Browser struct {
	// Context is that of its first tab.
	Context context.Context
	axe     string
	stop    []func()
}

// Start starts one for a repository's root. It has a profile of its own, which is removed when it stops.
func Start(ctx context.Context, root string) (*Browser, error) {
	folder, err := filepath.Abs(filepath.Join(root, Folder))
	if err != nil {
		return nil, fmt.Errorf("find Chromium: %w", err)
	}
	program := filepath.Join(folder, "debian/usr/lib/chromium/chromium")
	if _, err := os.Stat(program); err != nil {
		return nil, ErrMissing
	}
	axe, err := os.ReadFile(filepath.Join(folder, "axe-core/axe.min.js"))
	if err != nil {
		return nil, fmt.Errorf("read axe-core: %w", err)
	}
	home, err := os.MkdirTemp("", "divvy-browser-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the browser: %w", err)
	}
	libraries := []string{"usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/pulseaudio"}
	for i := range libraries {
		libraries[i] = filepath.Join(folder, "debian", libraries[i])
	}
	fonts := filepath.Join(home, "fonts.conf")
	setting := fmt.Sprintf("<?xml version=\"1.0\"?><fontconfig><dir>%s</dir><cachedir>%s</cachedir></fontconfig>", filepath.Join(folder, "debian/usr/share/fonts"), filepath.Join(home, "fonts"))
	if err := os.WriteFile(fonts, []byte(setting), 0o600); err != nil {
		return nil, fmt.Errorf("name the browser's fonts: %w", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.UserDataDir(filepath.Join(home, "profile")), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(1280, 900),
		chromedp.Env("LD_LIBRARY_PATH="+strings.Join(libraries, ":"), "FONTCONFIG_FILE="+fonts, "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home),
	)
	allocated, stopProgram := chromedp.NewExecAllocator(ctx, options...)
	// A newer Chromium tells more than this library knows.
	tab, closeTab := chromedp.NewContext(allocated, chromedp.WithErrorf(func(string, ...any) {}))
	b := &Browser{Context: tab, axe: string(axe), stop: []func(){closeTab, stopProgram, func() { _ = os.RemoveAll(home) }}}
	if err := chromedp.Run(tab); err != nil {
		b.Close()
		return nil, fmt.Errorf("start Chromium: %w", err)
	}
	return b, nil
}

// Close ends the browser and removes its profile.
func (b *Browser) Close() {
	for _, stop := range b.stop {
		stop()
	}
}

// Scheme has pages shown in the dark or light.
func Scheme(name string) chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}})
}

// Violation is what axe-core finds wrong.
type Violation struct {
	ID    string `json:"id"`
	Help  string `json:"help"`
	Nodes []struct {
		HTML string `json:"html"`
	} `json:"nodes"`
}

// Violations has axe-core look at the page that is shown, by every rule that it has. Beside the page's policy, which lets
// nothing in, it comes by the debugger.
func (b *Browser) Violations(ctx context.Context) ([]Violation, error) {
	var found string
	err := chromedp.Run(ctx,
		chromedp.Evaluate(b.axe, nil),
		chromedp.Evaluate(`axe.run(document, {resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations.map(v => ({id: v.id, help: v.help, nodes: v.nodes.slice(0, 3).map(n => ({html: n.html}))}))))`, &found, awaited))
	if err != nil {
		return nil, fmt.Errorf("run axe-core: %w", err)
	}
	var all []Violation
	if err := json.Unmarshal([]byte(found), &all); err != nil {
		return nil, fmt.Errorf("read what axe-core found: %w", err)
	}
	return all, nil
}

// Picture keeps a picture of the whole page in a file.
func Picture(ctx context.Context, file string) error {
	var png []byte
	if err := chromedp.Run(ctx, chromedp.FullScreenshot(&png, 100)); err != nil {
		return fmt.Errorf("take a picture: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("keep a picture: %w", err)
	}
	if err := os.WriteFile(file, png, 0o600); err != nil {
		return fmt.Errorf("keep a picture: %w", err)
	}
	return nil
}

// awaited waits for a promise's value.
func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
