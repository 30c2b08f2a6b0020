package nri

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/containerd/nri/pkg/api"
)

// No share is put into a container whose runtime has a kernel of its own: what the runtime says decides.
func TestKernelsOfTheirOwn(t *testing.T) {
	for handler, refused := range map[string]bool{"": false, "runc": false, "nvidia": false, "runsc": true, "kata-qemu": true} {
		inBubble(t, func(t *testing.T, ctx context.Context, p *plugin, a *tenants) {
			sandbox := sandboxOf("s1", "u1")
			sandbox.RuntimeHandler = handler
			if err := p.RunPodSandbox(ctx, sandbox); err != nil {
				t.Fatal(err)
			}
			_, _, err := p.CreateContainer(ctx, sandbox, &api.Container{Id: "c1", Name: "main"})
			if (err != nil) != refused || refused && !strings.Contains(err.Error(), "handler "+handler+", which runs containers on a kernel of their own") {
				t.Errorf("handler %q: %v", handler, err)
			}
			if got := len(a.Tenancies()) > 0; got == refused {
				t.Errorf("handler %q: it has a share: %v", handler, got)
			}
			if err := p.StopPodSandbox(ctx, sandbox); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		})
	}
}
