package mps

import "testing"

// The control program is told by its name, whoever started it and however.
func TestIsControl(t *testing.T) {
	for command, want := range map[string]bool{
		"/usr/bin/nvidia-cuda-mps-control\x00-d\x00": true, "nvidia-cuda-mps-control\x00": true, "/bin/sh\x00/usr/bin/nvidia-cuda-mps-control\x00-d\x00": true,
		"nvidia-cuda-mps-server\x00": false, "vi\x00a\x00nvidia-cuda-mps-control\x00": false, "": false,
	} {
		if got := isControl([]byte(command)); got != want {
			t.Errorf("%q: %v", command, got)
		}
	}
}

func TestToldPipe(t *testing.T) {
	for environment, want := range map[string]string{
		"": DefaultPipe, "PATH=/bin\x00CUDA_MPS_PIPE_DIRECTORY=/srv/mps\x00": "/srv/mps", "CUDA_MPS_PIPE_DIRECTORY=\x00": DefaultPipe, "XCUDA_MPS_PIPE_DIRECTORY=/a\x00": DefaultPipe,
	} {
		if got := toldPipe([]byte(environment)); got != want {
			t.Errorf("%q: %q", environment, got)
		}
	}
	for pipe, want := range map[string]bool{
		DirsOf("/run/divvy/mps", "GPU-00112233-4455-6677-8899-aabbccddeeff").Pipe: true,
		DefaultPipe: false, "/srv/mps": false, "/srv/mps/pipe": false, "/srv/mps/GPU-00112233/other": false, "pipe": false,
	} {
		if got := ofDivvy(pipe); got != want {
			t.Errorf("%q: %v", pipe, got)
		}
	}
}

func FuzzToldPipe(f *testing.F) {
	f.Add([]byte("PATH=/bin\x00CUDA_MPS_PIPE_DIRECTORY=/srv/mps\x00"))
	f.Fuzz(func(t *testing.T, environment []byte) {
		if pipe := toldPipe(environment); pipe == "" {
			t.Errorf("%q: none", environment)
		} else {
			ofDivvy(pipe)
			isControl(environment)
		}
	})
}
