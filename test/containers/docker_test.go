package containers

import (
	"strings"
	"testing"
)

// newDocker is a machine with a version of Docker, 20 or 26.
func newDocker(t *testing.T, version, config string) *machine {
	t.Helper()
	docker, containers := unpacked(t, "docker"), cgroup(t)
	m := open(t, "docker")
	m.start("image.sh")
	m.start("docker.sh", docker+"/"+version, docker+"/20", containers, config)
	m.serve()
	return m
}

// prints fails unless a script prints a text.
func (m *machine) prints(script, want string) {
	m.t.Helper()

	if out, err := m.sh(script); !strings.Contains(out, want) {
		m.t.Errorf("%s\nprints\n%s(%v), and not %q", script, out, err, want)
	}
}

// A Docker that is older than CDI has shares by its arguments, and a newer one by the device. Either holds their limits, hides
// what CUDA's images bring, and loses its containers with the share.
func TestDocker(t *testing.T) {
	for _, test := range []struct{ name, version, config, by, gone string }{
		{"20.10 by arguments", "20", `{}`, "$(divvy share show train -o docker)", "bind source path does not exist"},
		{"26.1 by the device", "26", `{"features": {"cdi": true}}`, "--device divvy.dev/share=train", "unresolvable CDI devices divvy.dev/share=train"},
		{"26.1 by arguments", "26", `{}`, "$(divvy share show train -o docker)", "bind source path does not exist"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newDocker(t, test.version, test.config)
			m.prints("divvy share create train --memory 8Gi", "divvy.dev/share=train\n")
			m.prints("echo "+test.by+" >/opt/by; cat /opt/by", "/share") // the last runs are after the share has ended
			run := "docker run $(cat /opt/by) "
			m.prints(run+"--rm bench gpubench info", `"total_bytes":8589934592`)
			m.prints(run+"--rm bench gpubench alloc --bytes 1Gi --count 9", `"result":"CUDA_ERROR_OUT_OF_MEMORY"`)
			m.prints(run+"--rm bench sh -c 'cat /usr/local/cuda-12.4/compat/libcuda.so.1 || echo hidden'", "hidden")
			m.prints(run+"--name job --detach bench sleep 1000 >/dev/null && divvy share rm train --grace 1s && timeout 60 docker wait job", "137")
			m.prints(run+"--rm bench gpubench info 2>&1", test.gone)
		})
	}
}

// A Docker that is not told to does not know devices of CDI, as the page says.
func TestDockerHasToBeTold(t *testing.T) {
	m := newDocker(t, "26", `{}`)
	m.prints("divvy share create train --memory 8Gi && docker run --rm --device divvy.dev/share=train bench gpubench info 2>&1 | grep -v ^divvy", "could not select device driver")
}
