package runtimes

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
)

// imageName is what sandboxes and containers run.
const imageName = "divvy.test/idle:1"

// image makes an archive of an image with one program and returns its path.
func image(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "idle")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./idle")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the image's program: %v: %s", err, said)
	}
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	layer := pack(t, map[string][]byte{"idle": text})
	config := encode(t, map[string]any{
		"architecture": goruntime.GOARCH, "os": "linux", "config": map[string]any{"Entrypoint": []string{"/idle"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	manifest := encode(t, map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": described("config.v1+json", config), "layers": []any{described("layer.v1.tar", layer)},
	})
	named := described("manifest.v1+json", manifest)
	named["annotations"] = map[string]string{"io.containerd.image.name": imageName}
	files := map[string][]byte{
		"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`),
		"index.json": encode(t, map[string]any{"schemaVersion": 2, "manifests": []any{named}}),
	}
	for _, blob := range [][]byte{layer, config, manifest} {
		files["blobs/sha256/"+strings.TrimPrefix(digest(blob), "sha256:")] = blob
	}
	archive := filepath.Join(dir, "image.tar")
	if err := os.WriteFile(archive, pack(t, files), 0o644); err != nil {
		t.Fatal(err)
	}
	return archive
}

func digest(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

func described(kind string, content []byte) map[string]any {
	return map[string]any{"mediaType": "application/vnd.oci.image." + kind, "digest": digest(content), "size": len(content)}
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func pack(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
