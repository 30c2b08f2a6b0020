package main

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// scrubber takes out of a text what would tell whose machine a report is from. Texts of our own need none; whatever a
// program, the driver or the system said goes through it.
type scrubber struct {
	// places are folders of this machine, the longest first, and names its names; each with what stands for it.
	places, names []replacement
}

type replacement struct {
	pattern *regexp.Regexp
	by      string
}

// Forms of secrets that are known without the machine.
var secretForms = []replacement{
	{regexp.MustCompile(`\b(?:GPU|MIG)-[0-9A-Fa-f/-]{8,}`), "(GPU's UUID)"},
	{regexp.MustCompile(`\b[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b`), "(UUID)"},
	{regexp.MustCompile(`\b(?:[0-9A-Fa-f]{4,8}:)[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]\b`), "(PCI address)"},
	{regexp.MustCompile(`\b[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}\b`), "(network address)"},
	{regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b`), "(network address)"},
	// IPv6: addresses that are routed, of a site, and of a link. Others look like names of C++ with hexadecimal words.
	{regexp.MustCompile(`(?i)\b(?:[23][0-9a-f]{3}|f[cde][0-9a-f]{2})(?::[0-9a-f]{0,4}){2,7}(?:%\w+)?`), "(network address)"},
	{regexp.MustCompile(`\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b`), "(mail address)"},
	{regexp.MustCompile(`(?i)\b(serial(?: number)?|board id)(["']?\s*[:=]\s*["']?)[\w-]+`), "$1$2(number)"},
	{regexp.MustCompile(`\b[0-9a-f]{32,}\b`), "(number)"},
}

// path is a file's absolute path. Those of the system's own files tell nothing and help a reader.
var (
	path       = regexp.MustCompile(`(^|[^\w./-])(~?/[^\s"'` + "`" + `,;:()\[\]<>|]+)`)
	systemPath = regexp.MustCompile(`^/(?:dev/nvidia[a-z-]*\d*|dev/shm|proc/(?:self|sys)(?:/[a-z_0-9]+)*|proc|sys|tmp|usr/(?:lib|lib64|bin|local/cuda(?:-[\d.]+)?)(?:/(?:x86_64-linux-gnu|aarch64-linux-gnu|wsl/lib))?(?:/(?:lib(?:cuda|nvidia-ml)[\w.-]*|nvidia-smi))?|run/divvy(?:/system-agent)?)$`)
)

// newScrubber learns the machine's own words: its names, its users, and the folders of this run.
func newScrubber(ctx context.Context, folders ...string) *scrubber {
	s := &scrubber{}
	for _, folder := range folders {
		s.learn(folder, "(folder)")
		if real, err := filepath.EvalSymlinks(folder); err == nil {
			s.learn(real, "(folder)")
		}
	}
	home, _ := os.UserHomeDir()
	s.learn(home, "(home)")
	for _, name := range []string{os.Getenv("HOSTNAME"), hostname()} {
		s.learnName(name, "(host)")
		_, domain, _ := strings.Cut(name, ".")
		s.learnDomain(domain)
	}
	resolver, _ := os.ReadFile("/etc/resolv.conf")
	for _, domain := range domains(string(resolver)) {
		s.learnDomain(domain)
	}
	for _, variable := range []string{"USER", "LOGNAME", "SUDO_USER", "USERNAME"} {
		s.learnName(os.Getenv(variable), "(user)")
	}
	for _, user := range users(ctx) {
		s.learnName(user, "(user)")
	}
	for _, list := range [][]replacement{s.places, s.names} {
		slices.SortStableFunc(list, func(a, b replacement) int {
			return cmp.Compare(len(b.pattern.String()), len(a.pattern.String()))
		})
	}
	return s
}

// learn takes a text as it is, wherever it stands.
func (s *scrubber) learn(text, by string) {
	if len(text) > 1 {
		s.places = append(s.places, replacement{regexp.MustCompile(regexp.QuoteMeta(text)), by})
	}
}

// common are names that tell nothing, and are words of reports.
var common = []string{"localhost", "root", "nobody", "nonexistent", "home", "user", "gpu", "cuda", "divvy", "nvidia", "linux"}

// learnName takes a name as a word, in any case. A host's first part is a name too.
func (s *scrubber) learnName(name, by string) {
	for _, part := range []string{name, firstPart(name)} {
		if len(part) > 1 && !slices.Contains(common, strings.ToLower(part)) {
			s.names = append(s.names, replacement{word(part), by})
		}
	}
}

// learnDomain takes a domain as a word. One of a single part, as local or lan, says nothing and is a word of reports.
func (s *scrubber) learnDomain(domain string) {
	if domain = strings.Trim(domain, "."); strings.Contains(domain, ".") {
		s.names = append(s.names, replacement{word(domain), "(host)"})
	}
}

// word finds a text in any case where it is no part of a longer word. \b knows the letters of ASCII alone, so a text is
// found anywhere if it begins or ends in another one.
func word(text string) *regexp.Regexp {
	pattern := regexp.QuoteMeta(text)
	if asciiWord.MatchString(text[:1]) {
		pattern = `\b` + pattern
	}
	if asciiWord.MatchString(text[len(text)-1:]) {
		pattern += `\b`
	}
	return regexp.MustCompile(`(?i)` + pattern)
}

var asciiWord = regexp.MustCompile(`^\w$`)

func firstPart(name string) string {
	part, _, _ := strings.Cut(name, ".")
	return part
}

func hostname() string {
	name, _ := os.Hostname()
	return name
}

// domains are those of the resolver's configuration.
func domains(resolver string) (found []string) {
	for line := range strings.Lines(resolver) {
		if fields := strings.Fields(line); len(fields) > 1 && (fields[0] == "domain" || fields[0] == "search") {
			found = append(found, fields[1:]...)
		}
	}
	return found
}

// users are the people of this machine, by its file and, for those who run something now, by its directory service.
func users(ctx context.Context) []string {
	text, _ := os.ReadFile("/etc/passwd")
	names := people(string(text))
	uids := map[string]bool{strconv.Itoa(os.Getuid()): true}
	running, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range running {
		var stat syscall.Stat_t
		if err := syscall.Stat(dir, &stat); err == nil {
			uids[strconv.FormatUint(uint64(stat.Uid), 10)] = true
		}
	}
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if program := findProgram("getent", "/usr/bin", "/bin"); program != "" {
		o, _ := finish(within, append([]string{program, "passwd"}, slices.Sorted(maps.Keys(uids))...), nil, nil)
		names = append(names, people(o.out)...)
	}
	return names
}

// people are the names of people and their home folders in lines of passwd(5): accounts of the system's own say nothing.
func people(lines string) (names []string) {
	for line := range strings.Lines(lines) {
		if fields := strings.Split(line, ":"); len(fields) > 5 && (len(fields[2]) > 3 || strings.HasPrefix(fields[5], "/home/")) {
			names = append(names, fields[0], filepath.Base(fields[5]))
		}
	}
	return names
}

// clean is the text without secrets.
func (s *scrubber) clean(text string) string {
	for _, list := range [][]replacement{s.places, secretForms, s.names} {
		for _, r := range list {
			text = r.pattern.ReplaceAllString(text, r.by)
		}
	}
	text = path.ReplaceAllStringFunc(text, func(match string) string {
		parts := path.FindStringSubmatch(match)
		if bare := strings.TrimRight(parts[2], "."); systemPath.MatchString(bare) {
			return match
		}
		return parts[1] + "(path)"
	})
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}
