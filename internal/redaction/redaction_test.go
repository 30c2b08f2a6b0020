package redaction

import (
	"slices"
	"strings"
	"testing"
)

// planted are secrets in the forms in which they are found: %s stands for what must not survive.
var planted = []struct{ name, before, secret, after string }{
	{"a flag", "--token=", "s3cr3tValue", ""},
	{"a flag and its value", "--password ", "s3cr3tValue", ""},
	{"a variable", "MY_API_KEY=", "s3cr3tValue", ""},
	{"a variable with a number", "DB_PASSWORD2=", "s3cr3tValue", ""},
	{"quoted", `password="`, "s3cr3t Value", `"`},
	{"quoted once more", `\"client_secret\": \"`, "s3cr3t Value", `\"`},
	{"JSON", `"accessToken": "`, "s3cr3tValue", `"`},
	{"YAML", "    token: ", "s3cr3tValue", ""},
	{"a key of a kubeconfig", "    client-key-data: ", "TFMwdExTMUNSVWRKVGlCU1UwRWc", ""},
	{"a header", "Authorization: Bearer ", "abcdefgh12345678", ""},
	{"a header of another kind", "authorization: ", "Token abcdef", ""},
	{"basic", "Basic ", "dXNlcjpzM2NyM3Q=", ""},
	{"a cookie", "Set-Cookie: ", "session=abcdef; Path=/", ""},
	{"an address", "https://", "ada:s3cr3t", "@example.org/x"},
	{"an address with a token", "git+https://", "s3cr3tToken", "@example.org"},
	{"a web token", "", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", ""},
	{"a key", "-----BEGIN RSA PRIVATE KEY-----\n", "MIIEpAIBAAKCAQEAx", "\n-----END RSA PRIVATE KEY-----"},
	{"a key, cut off", "-----BEGIN PRIVATE KEY-----\n", "MIIEpAIBAAKCAQEAx", ""},
	{"a key in base64", "", "LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQ==", ""},
	{"GitHub", "", "ghp_0123456789abcdefghij0123456789abcdef", ""},
	{"GitHub, fine-grained", "", "github_pat_11ABCDEFG0123456789_abcdefghijklmnop", ""},
	{"Hugging Face", "", "hf_abcdefghijklmnopqrstuvwxyzABCDEF", ""},
	{"AWS", "", "AKIAIOSFODNN7EXAMPLE", ""},
	{"AWS, the other half", "aws_secret_access_key = ", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""},
	{"WandB", "WANDB_API_KEY: ", "0123456789abcdef0123456789abcdef01234567", ""},
	{"WandB's .netrc", "machine api.wandb.ai\n  login user\n  password ", "0123456789abcdef0123456789abcdef01234567", ""},
	{"Slack", "", "xoxb-123456789012-abcdefghijkl", ""},
	{"GitLab", "", "glpat-abcdefghijklmnopqrst", ""},
	{"NVIDIA", "", "nvapi-abcdefghijklmnopqrstuvwxyz", ""},
	{"a value that begins as a flag", "--password ", "-s3cr3tValue", ""},
	{"an abbreviated flag", "mysql --pass ", "s3cr3tValue", ""},
	{"a flag and its value in one", "mysql -p", "s3cr3tValue", ""},
	{"two fields of JSON", `{"name":"DB_PASSWORD","value":"`, "s3cr3tValue", `"}`},
	{"two fields of YAML", "- name: DB_PASSWORD\n  value: ", "s3cr3tValue", ""},
	{"a link of Divvy", "http://127.0.0.1:9410/s/", "0123456789abcdefghijklmnopqrstuvwxyzABCDEFG", ""},
	{"a link of Divvy for once", "http://127.0.0.1:9410/open/", "0123456789abcdefghijklmnopqrstuvwxyzABCDEFG", ""},
	{"DB_PASS", "DB_PASS=", "s3cr3tValue", ""}, {"PGPASS", "PGPASS=", "s3cr3tValue", ""}, {"AUTH", "AUTH=", "s3cr3tValue", ""},
	{"key", "key=", "s3cr3tValue", ""}, {"SSH_KEY", "SSH_KEY=", "s3cr3tValue", ""}, {"license_key", "license_key=", "s3cr3tValue", ""},
	{"GITHUB_PAT", "GITHUB_PAT=", "s3cr3tValue", ""}, {"jwt", "jwt=", "s3cr3tValue", ""}, {"session", "session=", "s3cr3tValue", ""}, {"otp", "otp=", "834791", ""},
	{"curl's user", "curl -u ada:", "s3cr3tValue", ""}, {"a user", "curl --user ada:", "s3cr3tValue", ""},
	{"the next line", "token:\n  ", "s3cr3tValue", ""}, {"a block", "token: |\n   ", "s3cr3tValue", ""}, {"a folded block", "token: >-\n   ", "s3cr3tValue", ""},
	{"a list of JSON", `["--password","`, "s3cr3tValue", `"]`}, {"a list of YAML", "- --password\n- ", "s3cr3tValue", ""},
	{"behind a comma", "password=a,", "s3cr3tValue", ""}, {"behind a semicolon", "password=a ;", "s3cr3tValue", ""}, {"behind an ampersand", "password=a &", "s3cr3tValue", ""},
	{"behind a quote", `password=a "`, "s3cr3tValue", ""}, {"behind a brace", "password=a }", "s3cr3tValue", ""}, {"two words", "password: first ", "SECOND", ""},
	{"a list of one", `{"password":["`, "s3cr3tValue", `"]}`}, {"a signed address", "https://example.org/x?sig=", "s3cr3tValue", ""},
	{"a signed address of AWS", "https://example.org/x?X-Amz-Signature=", "s3cr3tValue", ""}, {"Azure", "AccountName=a;AccountKey=", "s3cr3tValue", ""},
	{"in an address", "password%3D", "s3cr3tValue", ""}, {"an escaped name", `"pass\u0077ord":"`, "s3cr3tValue", `"`}, {"XML", "<password>", "s3cr3tValue", "</password>"},
	{"in words", "password ", "s3cr3tValue", ""}, {"Slack's hooks", "https://hooks.slack.com/", "services/T0/B0/s3cr3tValue", ""},
	{"a database", "ada:", "s3cr3tValue", "@example.org/db"},
	{"OpenAI", "", "sk-proj-abcdefghijklmnopqrstuvwxyz", ""},
}

func TestSecretsGo(t *testing.T) {
	for _, p := range planted {
		for _, around := range [][2]string{{"", ""}, {"a ", " b"}, {"\n", "\n"}, {`{"x": `, "}"}, {"level=INFO msg=", ""}, {"'", "'"}, {"\x00\xff", "\x00"}} {
			text := around[0] + p.before + p.secret + p.after + around[1]
			got := Text(text)
			if strings.Contains(got, p.secret) || !strings.Contains(got, Mark) {
				t.Errorf("%s: %q became %q", p.name, text, got)
			}
			if again := Text(got); again != got {
				t.Errorf("%s: %q became %q, and then %q", p.name, text, got, again)
			}
		}
	}
}

// What is no secret stays as it is.
func TestTheRestStays(t *testing.T) {
	for _, text := range []string{
		"", "ok    agent: pid 7 of root serves, driver 550.54.15", "GPU-5b7cc00f-77b3-4973-9d75-c4f6a7c1a2c5",
		"time=2026-03-01T12:00:00Z level=INFO msg=\"granted\" share=train user=ada gpu=0 memory=8Gi",
		"NVRM: Xid (PCI:0000:07:00): 79, pid='<unknown>', GPU has fallen off the bus.",
		"5663 5660 0:27 /divvy-0/tenants/c9691f2b/libcuda-real.so.1 /usr/lib ro,relatime - tmpfs tmpfs rw,size=24684084k",
		"LD_LIBRARY_PATH=/usr/local/cuda/lib64:/opt/lib", "https://example.org/path?x=1", "user@example.org", "tokenizer=bert-base", "Basic tests passed",
		"registry.k8s.io/pause@sha256:7031c1b283388d2c2e09b57badb803c05ebed362dc88d84b480cc47f72a21097", "python train.py --lr 0.1 --epochs 3",
		"monkey: banana", "the bearer of this ring", "/dev/shm/divvy-1000/tenants/64b4f201/state", "task-scheduler-controller-manager-0",
		"the password was wrong", "ask for a password and a token of your own", "a password is asked for: type it", "docker.io/library/pause:3.9@sha256:7031c1b283388d2c2e09b57badb803c05ebed362dc",
		"fail  agent: a token is missing; next: `divvy web` prints a link", "key: node.kubernetes.io/unschedulable", "session 4 of user ada", "12:00:01 agent: 3 shares pass the check",
	} {
		if got := Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestArguments(t *testing.T) {
	got := Arguments([]string{"python", "train.py", "--token", "abc", "--hub-token=def", "--lr", "0.1", "-password", "x", "--api-key", "--verbose", "WANDB_API_KEY=ghi"})
	want := []string{"python", "train.py", "--token", Mark, "--hub-token=" + Mark, "--lr", "0.1", "-password", Mark, "--api-key", Mark, "WANDB_API_KEY=" + Mark}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestEnvironment(t *testing.T) {
	got := Environment([]string{"PATH=/bin", "HOME=/home/ada", "CUDA_VISIBLE_DEVICES=0,1", "DIVVY_SHARE=train", "DIVVY_TOKEN=abc", "WHATEVER=abc", "LD_PRELOAD=/x --token=abc", "ODD"})
	want := []string{"CUDA_VISIBLE_DEVICES=0,1", "DIVVY_SHARE=train", "DIVVY_TOKEN=" + Mark, "HOME=" + Mark, "LD_PRELOAD=/x --token=" + Mark, "ODD=" + Mark, "PATH=/bin", "WHATEVER=" + Mark}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A secret of each kind goes whatever stands around it, and to redact twice changes nothing.
func FuzzSecretsGo(f *testing.F) {
	f.Add("a ", " b", 0)
	f.Add("password=[redacted", "]", 1)
	f.Add("https://x", "@", 2)
	f.Add("token: \"\\", "\\\"", 8)
	f.Add("[redacted]", "[redacted]", 13)
	f.Add("Authorization: ", "\"'", 19)
	f.Fuzz(func(t *testing.T, before, after string, which int) {
		p := planted[int(uint(which)%uint(len(planted)))]
		if strings.Contains(before, p.secret) || strings.Contains(after, p.secret) {
			return
		}
		text := before + " " + p.before + p.secret + p.after + after
		got := Text(text)
		if strings.Contains(got, p.secret) {
			t.Fatalf("%s survives in %q of %q", p.name, got, text)
		}
		if again := Text(got); again != got {
			t.Fatalf("%q became %q, and then %q", text, got, again)
		}
	})
}

func BenchmarkText(b *testing.B) {
	text := []byte(strings.Repeat("time=2026-03-01T12:00:00Z level=INFO msg=\"granted\" share=train user=ada gpu=0 memory=8Gi policy=fixed\n", 2500))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		Bytes(text)
	}
}
