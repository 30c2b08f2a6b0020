// Load puts the image of an archive into the storage that a CRI-O uses, which has no client that does:
//
//	load ROOT RUNROOT ARCHIVE NAME
//
// It mounts things: give it a mount namespace of its own.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/containers/image/v5/copy"
	"github.com/containers/image/v5/oci/archive"
	"github.com/containers/image/v5/signature"
	images "github.com/containers/image/v5/storage"
	"github.com/containers/image/v5/types"
	"github.com/containers/storage"
	"github.com/containers/storage/pkg/reexec"
)

func main() {
	if reexec.Init() {
		return
	}
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: load ROOT RUNROOT ARCHIVE NAME")
		os.Exit(2)
	}
	if err := load(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func load(root, runRoot, file, name string) error {
	store, err := storage.GetStore(storage.StoreOptions{GraphRoot: root, RunRoot: runRoot, GraphDriverName: "overlay"})
	if err != nil {
		return fmt.Errorf("open the storage: %w", err)
	}
	images.Transport.SetStore(store)
	from, err := archive.NewReference(file, "")
	if err != nil {
		return fmt.Errorf("open the archive: %w", err)
	}
	to, err := images.Transport.ParseReference(name)
	if err != nil {
		return fmt.Errorf("name the image: %w", err)
	}
	policy, err := signature.NewPolicyContext(&signature.Policy{Default: signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()}})
	if err != nil {
		return fmt.Errorf("trust the archive: %w", err)
	}
	within := copy.Options{DestinationCtx: &types.SystemContext{BlobInfoCacheDir: runRoot}}
	if _, err := copy.Image(context.Background(), policy, to, from, &within); err != nil {
		return fmt.Errorf("copy the image: %w", err)
	}
	return nil
}
