// Command deb writes a Debian package from a description (see nfpm.yaml) and a folder with the files that it installs. The same
// inputs give the same bytes. It is a module of its own, so that what it needs is no dependency of Divvy's programs.
//
//	go run -C hack/deb . -config nfpm.yaml -version 0.1.0 -arch amd64 -root ../../build/dist/stage -time 0 -out divvy.deb
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the only format that is written
	"github.com/goreleaser/nfpm/v2/files"
)

func main() {
	config := flag.String("config", "nfpm.yaml", "the description of the package")
	root := flag.String("root", "", "folder whose files the package installs at the same place below /")
	out := flag.String("out", "", "the package to write")
	version := flag.String("version", "", "version of the package")
	arch := flag.String("arch", "amd64", "architecture, as Go names it")
	seconds := flag.Int64("time", 0, "time of all files, in seconds since 1970")
	flag.Parse()
	made := time.Unix(*seconds, 0).UTC()
	if err := write(*config, *root, *out, *version, *arch, made); err != nil {
		fmt.Fprintln(os.Stderr, "deb:", err)
		os.Exit(1)
	}
}

func write(config, root, out, version, arch string, made time.Time) (err error) {
	described, err := nfpm.ParseFileWithEnvMapping(config, func(name string) string {
		return map[string]string{"VERSION": version, "ARCH": arch}[name]
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", config, err)
	}
	info, err := described.Get("deb")
	if err != nil {
		return err
	}
	info.MTime = made
	if err := addTree(info, root); err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	packager, err := nfpm.Get("deb")
	if err != nil {
		return err
	}
	// A reader of the package sees all of it or the one before.
	file, err := os.Create(out + ".new")
	if err != nil {
		return err
	}
	err = packager.Package(info, file)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", out, cmp.Or(err, os.Remove(out+".new")))
	}
	return os.Rename(out+".new", out)
}

// addTree adds the files below root. Those below /etc are configuration: an administrator's changes are kept.
func addTree(info *nfpm.Info, root string) error {
	return filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		inside, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		c := &files.Content{Source: path, Destination: "/" + filepath.ToSlash(inside), FileInfo: &files.ContentFileInfo{
			Owner: "root", Group: "root", Mode: 0o644, MTime: info.MTime,
		}}
		stat, err := os.Lstat(path)
		switch {
		case err != nil:
			return err
		case stat.Mode()&os.ModeSymlink != 0:
			c.Type, c.FileInfo.Mode = files.TypeSymlink, 0o777
			if c.Source, err = os.Readlink(path); err != nil {
				return err
			}
		case stat.Mode()&0o111 != 0:
			c.FileInfo.Mode = 0o755
		}
		if match, _ := filepath.Match("etc/*/*", inside); match {
			c.Type = files.TypeConfigNoReplace
		}
		info.Contents = append(info.Contents, c)
		return nil
	})
}
