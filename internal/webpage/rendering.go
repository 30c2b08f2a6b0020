package webpage

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/overview"
)

// viewKey is what readers share a rendering by: a node's name is "" for the first page.
type viewKey struct {
	reader string
	// named is true for readers with a name, who are shown no form.
	named bool
	node  string
}

// view is a page as readers with one key see it.
type view struct {
	key viewKey
	// turn holds one entry while the page is rendered.
	turn chan struct{}
	used time.Time // Site.mu guards it
	last *rendering
}

// rendering is a page at a moment.
type rendering struct {
	site    *Site
	key     viewKey
	shown   *overview.Overview
	time    time.Time
	at      time.Time // on this machine's clock
	missing bool      // there is no such node
	// part is what changes of it, and tag names that.
	part both
	tag  string

	document sync.Once
	json     both
	// frames are the whole pages of those who read lately, by name; mu guards them.
	mu     sync.Mutex
	frames map[string]*both
}

// both is a content, and the same compressed once somebody takes it so.
type both struct {
	plain []byte
	once  sync.Once
	small []byte
}

// compressed returns the content as gzip has it.
func (b *both) compressed() []byte {
	b.once.Do(func() {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, _ = w.Write(b.plain) // to memory
		_ = w.Close()
		b.small = out.Bytes()
	})
	return b.small
}

// view returns the one of a key. The one that was looked at least lately goes for it.
func (s *Site) view(key viewKey) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.views[key]
	if v == nil {
		if len(s.views) >= mostViews {
			var oldest *view
			for _, other := range s.views {
				if oldest == nil || other.used.Before(oldest.used) {
					oldest = other
				}
			}
			delete(s.views, oldest.key) // who looks at it goes on with it alone
		}
		v = &view{key: key, turn: make(chan struct{}, 1)}
		s.views[key] = v
	}
	v.used = time.Now()
	return v
}

// Forget drops every rendering. Who looks is shown a new one.
func (s *Site) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.views)
}

// fresh returns the rendering of a view that everybody gets now, and makes it where the last one is too old.
func (s *Site) fresh(ctx context.Context, v *view) (*rendering, error) {
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a rendering: %w", ctx.Err())
	}
	if v.last != nil && time.Since(v.last.at) < s.config.Every {
		return v.last, nil
	}
	begun := time.Now()
	// It is for others too: who asked first may go away meanwhile.
	shown, err := s.config.Overview(context.WithoutCancel(ctx), v.key.reader)
	if err != nil {
		return nil, fmt.Errorf("find out what to show: %w", err)
	}
	now := &rendering{site: s, key: v.key, shown: shown, time: shown.Time, at: begun, frames: map[string]*both{}}
	content, err := s.render(now)
	if err != nil {
		return nil, err
	}
	now.part.plain, now.tag = content, tagOf(content)
	s.mu.Lock()
	s.rendered++
	v.used = begun
	s.mu.Unlock()
	v.last = now
	return now, nil
}

// page returns the whole page of a reader.
func (n *rendering) page(reader string) (*both, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if page := n.frames[reader]; page != nil {
		return page, nil
	}
	text, err := n.site.frame(n, reader)
	if err != nil {
		return nil, err
	}
	if len(n.frames) >= mostFrames {
		clear(n.frames)
	}
	page := &both{plain: text}
	n.frames[reader] = page
	return page, nil
}

// document answers with what is shown as JSON.
func (s *Site) document(w http.ResponseWriter, r *http.Request, reader Reader) {
	now, err := s.fresh(r.Context(), s.view(viewKey{reader.Key, reader.Name != "", ""}))
	if err != nil {
		s.untold(w, r, err)
		return
	}
	now.document.Do(func() { now.json.plain, err = json.Marshal(now.shown) })
	if now.json.plain == nil {
		s.untold(w, r, fmt.Errorf("encode what to show: %w", err))
		return
	}
	respond(w, r, "application/json", http.StatusOK, &now.json)
}

// send answers with a content, or that the reader has it already.
func send(w http.ResponseWriter, r *http.Request, kind, tag string, content *both) {
	w.Header().Set("ETag", `"`+tag+`"`)
	if strings.Trim(r.Header.Get("If-None-Match"), `"`) == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	respond(w, r, kind, http.StatusOK, content)
}

// respond writes a content, compressed where the browser takes it so.
func respond(w http.ResponseWriter, r *http.Request, kind string, status int, content *both) {
	h, text := w.Header(), content.plain
	h.Set("Content-Type", kind)
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		text = content.compressed()
	}
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // the browser is gone
	}
}
