// Package webpage serves web pages that show an [overview.Overview] to browsers, and nothing that changes anything. The
// agent and the controller decide who reads and what a reader may see; this package renders, compresses and keeps browsers
// up to date.
//
// A page is whole without its script, which only applies updates. What is the same for several browsers is rendered once
// in a while for all of them, and nothing is rendered while nobody looks. No text is trusted: html/template escapes it, and
// [plain] cuts it and shows what would not be seen.
package webpage

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/overview"
)

// Reader is who looks at a page.
type Reader struct {
	// Key tells readers apart who see different things; readers with one key see the same.
	Key string
	// Name is how the page calls the reader, "" for anybody.
	Name string
	// First is true for readers who are told of changes though others have nearly all places, such as root.
	First bool
}

// Config is what a [Site] works with.
type Config struct {
	// Of is whose GPUs they are, such as a machine's name.
	Of string
	// Cluster is true for pages that list nodes, each of which has a page of its own, and false for those of one machine.
	Cluster bool
	// Advice is a sentence for a reader who may not see all, with what to do about it; "" for none.
	Advice string
	// Note is a sentence for every reader, at the end of each page; "" for none.
	Note string
	// Form has the pages of readers without a name ask for a token, which is posted to "session".
	Form bool
	// Version is Divvy's.
	Version string
	// Overview returns what the reader with a key may see. Nobody changes it afterwards.
	Overview func(ctx context.Context, key string) (*overview.Overview, error)
	// Ended reports whether what a request asked for is not to be shown any more; it is asked again and again while a browser
	// is told of changes. Nil never does.
	Ended func(r *http.Request) bool
	// Peer says who asks, as far as somebody can tell: each may have a part of the places of those who are told of changes. Nil
	// tells of nobody.
	Peer func(r *http.Request) string
	// Every is how long one rendering serves all readers that see the same.
	Every time.Duration
	Log   *slog.Logger
}

const (
	// mostViews bounds the renderings that are kept: a few MiB for a large cluster and hundreds of readers of their own.
	mostViews = 128
	// mostFrames bounds the whole pages that are kept of one rendering: one for each name among its readers.
	mostFrames = 4
	// streamLife is how long a browser is told before it has to ask again: one that has gone without a word, or never
	// reads, is not told for ever.
	streamLife = 15 * time.Minute
	// writeTime is how long one write to a browser may take.
	writeTime = 10 * time.Second
	// beat is how often a browser hears of a page that does not change.
	beat = 10 * time.Second
)

// Site answers browsers. It may be used by several goroutines.
type Site struct {
	config  Config
	streams *places
	// life, write and beat are the constants, but in tests.
	life, write, beat time.Duration

	mu    sync.Mutex
	views map[viewKey]*view
	// rendered counts renderings.
	rendered int
}

// New makes a Site.
func New(c Config) *Site {
	return &Site{
		config: c, streams: newPlaces(), views: map[viewKey]*view{},
		life: streamLife, write: writeTime, beat: beat,
	}
}

// Rendered is how many renderings there were.
func (s *Site) Rendered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rendered
}

// Kept is how many renderings are kept.
func (s *Site) Kept() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.views)
}

//go:embed assets
var assets embed.FS

// file is one that all pages use.
type file struct {
	kind    string
	content both
	tag     string
}

var files = map[string]*file{
	"style.css": asset("style.css", "text/css; charset=utf-8"),
	"script.js": asset("script.js", "text/javascript; charset=utf-8"),
	"icon.svg":  asset("icon.svg", "image/svg+xml"),
}

func asset(name, kind string) *file {
	content, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err) //nolint:forbidigo // a table built at start-up
	}
	return &file{kind: kind, content: both{plain: content}, tag: tagOf(content)}
}

// tagOf names a content.
func tagOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:12])
}

// longestView is more than "node/" and the longest name of a node.
const longestView = 300

// Answer answers a request for a path below that of the first page, such as "", "node/NAME", "overview.json" or "style.css".
// The query "part" asks for what changes of a page alone, and "events" to be told of changes.
func (s *Site) Answer(w http.ResponseWriter, r *http.Request, reader Reader, path string) {
	if !Guard(w, r, s.config.Form) {
		return
	}
	name, isNode := strings.CutPrefix(path, "node/")
	asset, isFile := files[path]
	switch {
	case isFile:
		w.Header().Set("Cache-Control", "no-cache")
		send(w, r, asset.kind, asset.tag, &asset.content)
		return
	case path == "overview.json" || path == "cluster.json" && s.config.Cluster:
		s.document(w, r, reader)
		return
	case path == "", isNode && name != "" && s.config.Cluster && !strings.Contains(name, "/") && len(path) <= longestView:
	default:
		http.Error(w, "there is no such page", http.StatusNotFound)
		return
	}
	v := s.view(viewKey{reader.Key, reader.Name != "", name})
	switch r.URL.RawQuery {
	case "events":
		s.stream(w, r, v, reader)
	case "part":
		s.part(w, r, v)
	default:
		s.page(w, r, v, reader.Name)
	}
}

// html is the type of pages.
const html = "text/html; charset=utf-8"

// page answers with a whole page.
func (s *Site) page(w http.ResponseWriter, r *http.Request, v *view, reader string) {
	now, err := s.fresh(r.Context(), v)
	if err != nil {
		s.untold(w, r, err)
		return
	}
	status := http.StatusOK
	if now.missing {
		status = http.StatusNotFound
	}
	page, err := now.page(reader)
	if err != nil {
		s.untold(w, r, err)
		return
	}
	respond(w, r, html, status, page)
}

// part answers with what changes of a page, if it has changed.
func (s *Site) part(w http.ResponseWriter, r *http.Request, v *view) {
	now, err := s.fresh(r.Context(), v)
	if err != nil {
		s.untold(w, r, err)
		return
	}
	w.Header().Set("Divvy-Time", now.time.UTC().Format(time.RFC3339))
	send(w, r, html, now.tag, &now.part)
}

// untold answers where there is nothing to show.
func (s *Site) untold(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		s.config.Log.WarnContext(r.Context(), "a web page cannot be shown", "error", err)
	}
	w.Header().Set("Retry-After", "2")
	http.Error(w, "nothing can be told now: try again in a moment", http.StatusServiceUnavailable)
}
