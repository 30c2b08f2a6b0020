package hack

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// apt stands for apt-get, apt-cache and dpkg: packages are files with their name in them. As apt does, it lists none that is
// in the working directory already. Where BROKEN is set a download ends after a part of one, with a fault or, as "short", without.
const apt = `#!/bin/bash
name() { echo "${1%%/*}_1%3a10.0_amd64.deb"; }
case "${0##*/} $*" in
apt-cache*) echo "Depends: linux-image-6.12.1-amd64 (= 6.12.1)" ;;
dpkg*) mkdir -p "$3/boot" && touch "$3/boot/vmlinuz-6.12.1-amd64" "$3/$(basename "$2")" ;;
*--print-uris*)
    for word; do case $word in */bookworm*)
        file=$(name "$word")
        [ ! -e "$file" ] || continue
        echo "'http://nowhere/$file' $file 1 SHA256:$(echo "$file" | sha256sum | cut -d' ' -f1)" ;;
    esac; done ;;
*download*)
    for word; do case $word in */bookworm*)
        file=$(name "$word")
        [ ! -e "$file" ] || continue
        echo "$file" >>"$LOG"
        case $BROKEN$file in
        *librdmacm1*) ;;
        *) echo "$file" >"$file"; continue ;;
        esac
        case $BROKEN in
        fault) echo part >"$file"; exit 1 ;;
        short) echo part >"$file" ;;
        *) echo "$file" >"$file" ;;
        esac ;;
    esac; done ;;
esac
`

// A download that breaks off leaves no kit. The next run fetches what is missing or short, and nothing else.
func TestKitHalfDownloaded(t *testing.T) {
	if _, err := os.Stat("/usr/share/keyrings/debian-archive-keyring.gpg"); err != nil {
		t.Skip("the kit is unpacked only where Debian's keys are known:", err)
	}
	for _, broken := range []string{"fault", "short"} {
		t.Run(broken, func(t *testing.T) {
			tools, folder, log := t.TempDir(), filepath.Join(t.TempDir(), "kit"), filepath.Join(t.TempDir(), "log")
			for _, name := range []string{"apt-get", "apt-cache", "dpkg"} {
				if err := os.WriteFile(filepath.Join(tools, name), []byte(apt), 0o755); err != nil { //nolint:gosec // a program
					t.Fatal(err)
				}
			}
			run := func(broken string) (string, error) {
				if err := os.WriteFile(log, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				cmd := exec.CommandContext(t.Context(), "./vm-kit.sh", folder)
				cmd.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "LOG="+log, "BROKEN="+broken)
				said, err := cmd.CombinedOutput()
				return string(said), err
			}
			fetched := func() int {
				text, err := os.ReadFile(log) //nolint:gosec // of this test
				if err != nil {
					t.Fatal(err)
				}
				return strings.Count(string(text), "\n")
			}
			if said, err := run(broken); err == nil {
				t.Fatalf("a download that breaks off is a kit: %s", said)
			}
			if _, err := os.Stat(filepath.Join(folder, ".complete")); err == nil {
				t.Fatal("a kit half downloaded has the mark of a whole one")
			}
			some := fetched()
			all, err := os.ReadFile(filepath.Join(folder, "digests.new")) //nolint:gosec // of this test
			if err != nil {
				t.Fatal(err)
			}
			if said, err := run(""); err != nil {
				t.Fatalf("the next run: %v: %s", err, said)
			}
			rest, count := fetched(), strings.Count(string(all), "\n")
			if broken == "fault" && some+rest != count+1 || broken == "short" && (some != count || rest != 1) {
				t.Errorf("of %d packages %d and then %d were fetched", count, some, rest)
			}
			if _, err := os.Stat(filepath.Join(folder, "tree/boot/vmlinuz-6.12.1-amd64")); err != nil {
				t.Error(err)
			}
			if said, err := run(""); err != nil || fetched() != 0 {
				t.Errorf("a whole kit is fetched again: %v: %s", err, said)
			}
		})
	}
}
