// Package redaction takes secrets out of text before people send it to others. It is pure. What it knows are the forms in
// which secrets are written: names that say so, tokens of well-known services, keys, and credentials in addresses. A secret
// in no such form stays, so whoever sends a text looks at it first.
package redaction

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Mark stands where a secret was.
const Mark = "[redacted]"

// pattern is an expression that is compiled when it is first asked for: every command has this package, and hardly any redacts.
type pattern func() *regexp.Regexp

func compiled(expression string) pattern {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// rule finds secrets, and puts something with the mark in their place.
type rule struct {
	find pattern
	with string
}

// rules are applied in order.
var rules = []rule{
	// Blocks of keys, whole and cut off.
	{compiled(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z0-9 ]*-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY[A-Z0-9 ]*-----|\z)`), Mark},
	// The same in base64, as Kubernetes has them.
	{compiled(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]{8,}`), Mark},
	// Headers of HTTP: everything up to the end of the line or of the quoted text.
	{compiled(`(?i)((?:proxy-)?authorization|(?:set-)?cookie|x-[\w\-]*(?:token|key|secret)[\w\-]*)(["']?\s*[:=]\s*["']?)[^\r\n"']+`), "${1}${2}" + Mark},
	{compiled(`((?i:bearer|negotiate)\s+)[A-Za-z0-9+/=_\-.~]{16,}`), "${1}" + Mark},
	{compiled(`(Basic\s+)(?:[A-Za-z0-9+/]{4,}={1,2}|[A-Za-z0-9+/]{24,})`), "${1}" + Mark},
	// The password of a .netrc file.
	{compiled(`(?i)(login\s+\S+\s+password\s+)\S+`), "${1}" + Mark},
	// Addresses with user and password, or a token in the user's place.
	{compiled(`([A-Za-z][A-Za-z0-9+.\-]*://)[^\s/?#"'<>]+@`), "${1}" + Mark + "@"},
	// Web tokens: three parts in base64, of which the first is a JSON object.
	{compiled(`eyJ[A-Za-z0-9_\-]{6,}\.[A-Za-z0-9_\-]{2,}(?:\.[A-Za-z0-9_\-]*)?`), Mark},
	// Tokens of services, by the beginnings that these publish.
	{compiled(`(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_\-]{16,}|hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}` +
		`|(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}|xox[abeoprs]-[A-Za-z0-9\-]{10,}|sk-(?:proj|ant|or|svcacct|admin)-[A-Za-z0-9_\-]{16,}|sk-[A-Za-z0-9]{20,}|sk_(?:live|test)_[A-Za-z0-9]{16,}|nvapi-[A-Za-z0-9_\-]{16,}` +
		`|AIza[A-Za-z0-9_\-]{30,}|ya29\.[A-Za-z0-9_\-.]{16,}|dckr_pat_[A-Za-z0-9_\-]{16,}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_\-]{16,}|wandb_v1_[A-Za-z0-9_\-]{16,}` +
		`|K10[0-9a-f]{32,}::[A-Za-z0-9:.\-]+)`), Mark},
	// Divvy's own links, by which whoever has one is let in, and those of Slack.
	{compiled(`(/(?:s|open)/)[A-Za-z0-9_\-]{43}`), "${1}" + Mark},
	{compiled(`(?i)(hooks\.slack\.com)/[^\s"']+`), "${1}/" + Mark},
	// A user with a password: flags of curl, and addresses of databases without a scheme.
	{compiled(`((?:^|[\s"'])(?:-u|-U|--user|--proxy-user)(?:["']?\s*,\s*["']?|[ =]+["']?)?)[^\s:"'=]+:[^\s"']+`), "${1}" + Mark},
	{compiled(`(^|[^\w.\-/:@])[\w.\-]+:[^\s/"'@]+@([A-Za-z0-9.\-\[]+(?:\([^\s)]*\)|:\d+)?/)`), "${1}" + Mark + "@${2}"},
	// A password in the same word as its flag.
	{compiled(`((?:^|[\s"'])-p)(?:[^\sa"'=\-\[]|a(?:[^s\s"']|s[^s\s"']))[^\s"']*`), "${1}" + Mark},
	// What has the form of a key of WandB or AWS, where its name is beside it.
	{compiled(`(?i)((?:wandb|aws|huggingface|kaggle|openai|anthropic)\w*\W{1,3})[A-Za-z0-9/+]{40}\b`), "${1}" + Mark},
}

// Text is a text without secrets. To redact twice changes nothing more.
func Text(text string) string { return string(Bytes([]byte(text))) }

// Bytes is [Text] of bytes, which need not be UTF-8.
func Bytes(text []byte) []byte {
	for range rules {
		before := text
		text = escaped().ReplaceAllFunc(text, plain)
		for _, r := range rules {
			text = r.find().ReplaceAll(text, []byte(r.with))
		}
		text = named(text)
		if bytes.Equal(before, text) {
			break // nothing that was taken out laid anything bare
		}
	}
	return text
}

// escaped is a letter of ASCII as JSON may have it, which would hide a name.
var escaped = compiled(`(?i)\\u00(?:4[1-9a-f]|5[0-9af]|6[1-9a-f]|7[0-9a])`)

func plain(found []byte) []byte {
	n, _ := strconv.ParseUint(string(found[2:]), 16, 8) // the pattern has digits alone
	return []byte{byte(n)}
}

// Arguments is a command line without secrets: also of those that stand behind a flag of their own.
func Arguments(args []string) []string {
	clean := make([]string, 0, len(args))
	for i, arg := range args {
		before := ""
		if i > 0 {
			before = args[i-1]
		}
		switch {
		case secretFlag(before), userFlag().MatchString(before) && strings.Contains(arg, ":"):
			clean = append(clean, Mark)
		default:
			clean = append(clean, Text(arg))
		}
	}
	return clean
}

var userFlag = compiled(`^(?:-u|-U|--user|--proxy-user)$`)

// secretFlag reports whether an argument is a flag whose value, a secret, is the next one.
func secretFlag(arg string) bool {
	return strings.HasPrefix(arg, "-") && !strings.ContainsAny(arg, "= \t\n") && strings.Contains(string(named([]byte(arg+" x"))), Mark)
}

// Allowed are the names of variables whose values are told. A name that ends in * stands for all that begin so.
var Allowed = []string{
	"CUDA_*", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "DIVVY_*", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "LANG", "LC_ALL", "TERM",
	"SHELL", "XDG_RUNTIME_DIR", "SLURM_JOB_GPUS", "SLURM_JOB_ID", "GPU_DEVICE_ORDINAL", "CONDA_PREFIX", "VIRTUAL_ENV", "PYTORCH_CUDA_ALLOC_CONF", "TRITON_LIBCUDA_PATH",
}

// Environment is an environment in which only allowed variables keep their values, which are redacted too. The others'
// names stay.
func Environment(env []string) []string {
	clean := make([]string, 0, len(env))
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		allowed := slices.ContainsFunc(Allowed, func(pattern string) bool {
			prefix, many := strings.CutSuffix(pattern, "*")
			return name == pattern || many && strings.HasPrefix(name, prefix)
		})
		if !allowed || secretFlag("-"+name) {
			clean = append(clean, Text(name)+"="+Mark)
			continue
		}
		clean = append(clean, name+"="+Text(value))
	}
	slices.Sort(clean)
	return clean
}
