package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// fetch returns a package's archive, and gets the distribution's current one
// unless the cache has one already.
func fetch(cache, name string) (string, error) {
	find := func() (string, error) {
		found, err := filepath.Glob(filepath.Join(cache, name+"_*.deb"))
		if err != nil || len(found) == 0 {
			return "", err
		}
		return found[0], nil
	}
	archive, err := find()
	if archive != "" || err != nil {
		return archive, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	cmd := exec.Command("apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", name)
	cmd.Dir = cache
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetch package %s: %w: %s: run `apt-get update` first", name, err, strings.TrimSpace(string(said)))
	}
	if archive, err = find(); archive == "" && err == nil {
		err = fmt.Errorf("fetch package %s: apt-get wrote no file", name)
	}
	return archive, err
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func digest(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

func describe(kind string, content []byte) descriptor {
	return descriptor{MediaType: "application/vnd.oci.image." + kind, Digest: digest(content), Size: len(content)}
}

// writeArchive writes an image of one layer in the OCI image layout.
func writeArchive(path, reference string, files []byte, entrypoint, command []string) error {
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "created": epoch,
		"config": map[string]any{
			"Entrypoint": entrypoint, "Cmd": command,
			"Env": []string{"PATH=/usr/local/bin:/usr/bin:/usr/sbin"},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(files)}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": describe("config.v1+json", config), "layers": []descriptor{describe("layer.v1.tar", files)},
	})
	if err != nil {
		return err
	}
	named := describe("manifest.v1+json", manifest)
	_, tag, _ := strings.Cut(reference, ":")
	// The first is what containerd calls it by, the second what the specification says.
	named.Annotations = map[string]string{"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": tag}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []descriptor{named}})
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	put := func(name string, content []byte) {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: epoch}))
		if err == nil {
			_, err = w.Write(content)
		}
	}
	put("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	put("index.json", index)
	for _, blob := range [][]byte{files, config, manifest} {
		put("blobs/sha256/"+strings.TrimPrefix(digest(blob), "sha256:"), blob)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	// A reader of the archive sees all of it or the one before.
	if err := os.WriteFile(path+".new", b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
