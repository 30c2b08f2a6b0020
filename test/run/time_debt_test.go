package run

import (
	"testing"
	"time"
)

// A user who starts a new share again and again gets no more than the shares' cap: each
// pays what the last one left, whether its program ended in order or was killed while its
// kernel ran.
func TestNewSharesPayOldDebts(t *testing.T) {
	for name, script := range map[string]string{
		"ends":      `exec "$0" spin --count 1 --ns 1000000000`,
		"is killed": `"$0" spin --count 1 --ns 2000000000 >/dev/null & sleep 1; kill -9 $!; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			share := func(script string) (used, passed time.Duration) {
				begin := h.truth()
				h.run(append(fixed(10), "--memory", "1Gi", "--", "sh", "-c", script, h.bench())...)
				end := h.truth()
				return time.Duration(end.Busy - begin.Busy), time.Duration(end.At - begin.At)
			}
			first, _ := share(script)
			second, passed := share(`exec "$0" spin --count 1 --ns 1000000`)
			t.Logf("after %v of GPU time the next %v took %v", first, second, passed)
			if first == 0 || second == 0 {
				t.Fatal("nothing was tried")
			}
			// A tenth of that time is the cap; the bound leaves room for the first share's end.
			if passed < 7*first {
				t.Errorf("after %v of GPU time under a cap of 10 %% the next share worked after %v", first, passed)
			}
		})
	}
}
