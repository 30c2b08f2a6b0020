package cli

import (
	"bytes"
	"strings"
	"testing"
)

func TestContainersOutsideTheShare(t *testing.T) {
	const outside = "are outside this share: make one as root"
	for command, want := range map[string]string{
		"docker run --gpus all image":                       outside,
		"/usr/bin/podman --log-level debug run image":       outside,
		"sudo docker compose up":                            outside,
		"docker run --device divvy.dev/share=train image":   "leave out `divvy run`",
		"podman run --device=divvy.dev/share=train image x": "leave out `divvy run`",
		"docker ps":               "",
		"docker":                  "",
		"sudo":                    "",
		"python run.py run":       "",
		"./docker-entrypoint run": "",
	} {
		var said bytes.Buffer
		a := &app{err: &said}
		a.tellOfContainers(strings.Fields(command))
		if got := said.String(); want == "" && got != "" || !strings.Contains(got, want) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: said %q, want %q in it", command, got, want)
		}
	}
}
