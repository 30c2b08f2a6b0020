package docker

import (
	"errors"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/edits"
)

func TestArguments(t *testing.T) {
	got, err := Arguments(edits.Edits{
		Mounts: []edits.Mount{
			{Source: "/dev/shm/t", Target: edits.ShareDir, Options: edits.ReadOnly},
			{Source: "/dev/shm/t/state", Target: edits.ShareDir + "/state", Options: edits.ReadWrite},
			{Source: "/proc/driver/nvidia/gpus/0000:01:00.0", Target: "/proc/driver/nvidia/gpus/0000:01:00.0", Options: edits.ReadOnly},
		},
		Devices: []edits.Device{{Path: "/dev/nvidia0", Source: "/dev/nvidia1", Major: 195, Minor: 1}},
		Hooks:   []edits.Hook{{Path: "/c", Args: []string{"c", "x"}, Outside: true}, {Path: "/c", Args: []string{"c"}}},
		Env:     []edits.Env{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"}, {Name: "DIVVY_SHARE", Value: "train"}},
	})
	want := `--mount=type=bind,source=/dev/shm/t,target=/run/divvy/share,readonly
--mount=type=bind,source=/dev/shm/t/state,target=/run/divvy/share/state
--mount=type=bind,source=/proc/driver/nvidia/gpus/0000:01:00.0,target=/proc/driver/nvidia/gpus/0000:01:00.0,readonly
--mount=type=tmpfs,target=/usr/local/cuda/compat,tmpfs-size=8192,tmpfs-mode=755
--device=/dev/nvidia1:/dev/nvidia0:rw
--env=NVIDIA_VISIBLE_DEVICES=void
--env=DIVVY_SHARE=train`
	if err != nil || strings.Join(got, "\n") != want {
		t.Errorf("got %v\n%s", err, strings.Join(got, "\n"))
	}
}

// Whatever a shell or Docker would divide or expand is refused.
func TestArgumentsAreRefused(t *testing.T) {
	for name, e := range map[string]edits.Edits{
		"a bind":              {Binds: []edits.Bind{{Source: "/a", Target: "/b"}}},
		"a list":              {Env: []edits.Env{{Name: "A", Value: "x", Prepend: true}}},
		"a space":             {Env: []edits.Env{{Name: "A", Value: "x y"}}},
		"a line":              {Env: []edits.Env{{Name: "A", Value: "x\ny"}}},
		"a pattern":           {Env: []edits.Env{{Name: "A", Value: "*"}}},
		"a comma in a source": {Mounts: []edits.Mount{{Source: "/a,readonly", Target: "/b"}}},
		"a quote in a target": {Mounts: []edits.Mount{{Source: "/a", Target: `/b"`}}},
		"a space in a source": {Mounts: []edits.Mount{{Source: "/a b", Target: "/b"}}},
		"a device's colon":    {Devices: []edits.Device{{Source: "/dev/a:b", Path: "/dev/a"}}},
		"a device's variable": {Devices: []edits.Device{{Source: "/dev/a", Path: "/dev/$a"}}},
	} {
		if _, err := Arguments(e); !errors.Is(err, ErrArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
