package main

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// ofQuark is the scrubber of a machine with telling names.
func ofQuark(t testing.TB) *scrubber {
	t.Setenv("HOSTNAME", "quark17.example.org")
	t.Setenv("USER", "ada")
	t.Setenv("HOME", "/home/ada")
	return newScrubber(context.Background(), "/data/secret project/gpu test", "/tmp/gpu-test-123")
}

func TestCleanTexts(t *testing.T) {
	s := ofQuark(t)
	for text, want := range map[string]string{
		"GPU-6e5f0d1c-3b5e-4a8e-9f7a-2d1c0b9a8f7e is busy": "(GPU's UUID) is busy",
		"MIG-6e5f0d1c-3b5e-4a8e-9f7a-2d1c0b9a8f7e":         "(GPU's UUID)",
		"boot 6e5f0d1c-3b5e-4a8e-9f7a-2d1c0b9a8f7e":        "boot (UUID)",
		"at 00000000:3B:00.0, 0000:3b:00.0":                "at (PCI address), (PCI address)",
		"open /data/secret project/gpu test/bin/divvy: no": "open (folder)(path): no",
		"open /home/ada/.nv/x: no":                         "open (home)(path): no",
		"see /srv/acme/rocket.log.":                        "see (path)",
		`failed ("/mnt/acme/x")`:                           `failed ("(path)")`,
		"on Quark17.example.org, quark17: user ada, Ada's": "on (host), (host): user (user), (user)'s",
		"adaptive": "adaptive",
		"from 192.168.17.4:8080 and 0a:1b:2c:3d:4e:5f":              "from (network address) and (network address)",
		"mail ada.l@example.org":                                    "mail (mail address)",
		`Serial Number: 1563221009876, serial="0323"`:               `Serial Number: (number), serial="(number)"`,
		"/dev/nvidiactl, /usr/lib/x86_64-linux-gnu/libcuda.so.1":    "/dev/nvidiactl, /usr/lib/x86_64-linux-gnu/libcuda.so.1",
		"/proc/self/fd, /run/divvy and CUDA 12.4, driver 550.90.07": "/proc/self/fd, /run/divvy and CUDA 12.4, driver 550.90.07",
		"4 of 30 : 70, 12 GiB/s, and/or":                            "4 of 30 : 70, 12 GiB/s, and/or",
		"a\x1b[31mb":                                                "a [31mb",
	} {
		if got := s.clean(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// Whatever stands around a secret, it goes.
func FuzzClean(f *testing.F) {
	f.Add("open ", ": no such file")
	f.Add("", "")
	f.Add("x=", "/y")
	f.Add("/", ".")
	s := ofQuark(f)
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, secret := range []string{"/data/secret project/gpu test", "/home/ada", "GPU-6e5f0d1c-3b5e-4a8e-9f7a-2d1c0b9a8f7e"} {
			if strings.Contains(before+after, secret) {
				continue
			}
			if got := s.clean(before + " " + secret + " " + after); strings.Contains(got, secret) {
				t.Errorf("%q is left in %q", secret, got)
			}
		}
		for _, name := range []string{"quark17.example.org", "ada"} {
			if got := s.clean(before + " " + name + " " + after); strings.Contains(got, " "+name+" ") {
				t.Errorf("%q is left in %q", name, got)
			}
		}
	})
}

func TestPeople(t *testing.T) {
	lines := "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1::/usr/sbin:/usr/sbin/nologin\nada:x:1000:1000:Ada:/home/lovelace:/bin/sh\n" +
		"grace:*:712345:100::/net/homes/ghopper:/bin/zsh\nsvc:x:200:200::/home/svc:/bin/false\nshort:x\n"
	if got, want := people(lines), []string{"ada", "lovelace", "grace", "ghopper", "svc", "svc"}; !slices.Equal(got, want) {
		t.Errorf("people are %v, want %v", got, want)
	}
}

// Names are found in every alphabet, and domains with all hosts in them; words that a report needs stay.
func TestNamesOfEveryAlphabet(t *testing.T) {
	s := &scrubber{}
	for _, name := range []string{"rené", "Özil", "ada"} {
		s.learnName(name, "(user)")
	}
	for _, domain := range domains("# search no.such\nnameserver 10.0.0.1\nsearch lab.quark.example local\ndomain lan\n") {
		s.learnDomain(domain)
	}
	for text, want := range map[string]string{
		"user rené has it, and RENÉ.": "user (user) has it, and (user).",
		"Özil, özil":                  "(user), (user)",
		"ada, not adamant":            "(user), not adamant",
		"gw.lab.quark.example":        "gw.(host)",
		"local memory, lan, no.such":  "local memory, lan, no.such",
		"fe80::1ff:fe23:4567:890a%eth0 and [2001:db8::8a2e:370:7334]:443": "(network address) and [(network address)]:443",
		"fd00::1, 2001:0db8:85a3:0000:0000:8a2e:0370:7334":                "(network address), (network address)",
		"c10::Error in at::native, 12:34:56":                              "c10::Error in at::native, 12:34:56",
	} {
		if got := s.clean(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
