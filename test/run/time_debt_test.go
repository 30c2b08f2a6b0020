package run

import (
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/page"
)

// A user who starts a new share again and again gets no more than the shares' cap: each
// pays what the last one left, whether its program ended in order or was killed while its
// kernel ran.
func TestNewSharesPayOldDebts(t *testing.T) {
	for name, script := range map[string]string{
		"ends":      `echo; exec "$0" spin --count 1 --ns 1000000000`,
		"is killed": `"$0" spin --count 1 --ns 10000000000 >/dev/null & echo; read x; kill -9 $!; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			share := func(script string, enough time.Duration) (begin, end truth) {
				begin = h.truth()
				s := h.hold(append(fixed(10), "--memory", "1Gi"), "sh", "-c", script, h.bench())
				h.eventually("the share computes", func() bool { return h.truth().Busy >= begin.Busy+uint64(enough) })
				s.end()
				end = h.truth()
				h.eventually("the agent knows that it has ended", func() bool { return len(h.list().Tenants) == 0 })
				return begin, end
			}
			begin, ended := share(script, time.Second)
			_, end := share(`echo; exec "$0" spin --count 1 --ns 1000000`, time.Millisecond)
			first, passed := time.Duration(ended.Busy-begin.Busy), time.Duration(end.At-begin.At)
			t.Logf("%v of GPU time, and then %v, took %v", first, time.Duration(end.Busy-ended.Busy), passed)
			// A tenth of the time is the cap, whatever of it passed between the two shares. A launch that was not measured counts for
			// so much at most.
			if passed < 8*min(first, 5*time.Second) {
				t.Errorf("after %v of GPU time under a cap of 10 %% the next share worked %v after the first one began", first, passed)
			}
		})
	}
}

// Shares one after the other that fill their buckets themselves owe what they used, and the
// one that works although it took that over is told.
func TestForgedBucketsOweTheirDebts(t *testing.T) {
	h := newHost(t)
	script := `"$0" spin --count 100000 --ns 2000000 >/dev/null & echo; read x; kill -9 $!; wait`
	told := func() (text string) {
		for _, e := range h.list().Events {
			if e.Kind == control.EventMisuse && e.Tenant == "liar" && strings.Contains(e.Text, "earlier shares") {
				text = e.Text
			}
		}
		return text
	}
	for share := 1; share <= 12; share++ {
		begin := h.truth()
		s := h.hold(append(fixed(10), "--memory", "1Gi", "--name", "liar"), "sh", "-c", script, h.bench())
		tenant, _ := h.tenant("liar")
		lie(t, tenant.Dir, map[int]int64{page.OffsetOfBucketBalance: int64(10 * time.Millisecond)})
		h.eventually("the share computes", func() bool {
			return told() != "" || h.truth().Busy >= begin.Busy+uint64(600*time.Millisecond)
		})
		s.end()
		h.eventually("the agent knows that it has ended", func() bool { return len(h.list().Tenants) == 0 })
		if text := told(); text != "" {
			t.Logf("share %d: %s", share, text)
			return
		}
	}
	t.Error("nothing was told of shares that work although their user owes")
}
