package v1alpha1

import (
	"encoding/json"
	"errors"
	"math/bits"
	"math/rand"
	"testing"
)

func TestParseMemory(t *testing.T) {
	for text, want := range map[string]Memory{
		"1":          Bytes(1),
		"4Gi":        Bytes(4 << 30),
		" 4Gi ":      Bytes(4 << 30),
		"1.5Gi":      Bytes(3 << 29),
		"0.5Ki":      Bytes(512),
		"800M":       Bytes(800e6),
		"2k":         Bytes(2000),
		"1T":         Bytes(1e12),
		"16777215Ti": Bytes(16777215 << 40),
		"1%":         Percent(1),
		"100%":       Percent(100),
	} {
		if got, err := ParseMemory(text); err != nil || got != want {
			t.Errorf("ParseMemory(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestParseMemoryRefuses(t *testing.T) {
	for _, text := range []string{
		"", " ", "0", "0Gi", "0.0Gi", "-1", "-4Gi", "-5%", "0%", "101%", "1000%", "50.5%", "%",
		"Gi", "4GiB", "4gb", "4G i", "four", "0x10", "1e9", "1_000", "+4Gi", "NaN", "Inf",
		"0.3", "1.0001k", ".5Gi", "5.Gi", "1.2.3Gi", "16777216Ti", "99999999999999999999",
		"1000000000000000000000000000000000000000000000", "४Gi",
	} {
		if got, err := ParseMemory(text); !errors.Is(err, ErrMemory) {
			t.Errorf("ParseMemory(%q) = %v, %v; want ErrMemory", text, got, err)
		}
	}
}

func TestMemoryOf(t *testing.T) {
	const capacity = 80<<30 - 12345
	for _, c := range []struct {
		memory Memory
		want   uint64
	}{
		{Bytes(1 << 30), 1 << 30},
		{Memory{}, capacity},
		{Percent(100), capacity},
		{Percent(50), (capacity / 2) / BlockBytes * BlockBytes},
		{Percent(1), (capacity / 100) / BlockBytes * BlockBytes},
	} {
		if got := c.memory.Of(capacity); got != c.want {
			t.Errorf("%v of the GPU = %d, want %d", c.memory, got, c.want)
		}
	}
	if sum := Percent(50).Of(capacity) * 2; sum > capacity {
		t.Error("two halves do not fit")
	}
	if got := Percent(99).Of(1<<64 - 1); got == 0 || got > 1<<64-1-1<<56 {
		t.Errorf("99%% of a huge capacity = %d", got)
	}
}

func TestMemoryInJSON(t *testing.T) {
	type object struct {
		Memory Memory `json:"memory,omitzero"`
	}
	for _, m := range []Memory{{}, Bytes(3 << 29), Bytes(12345), Percent(50)} {
		data, err := json.Marshal(object{m})
		if err != nil {
			t.Fatal(err)
		}
		var back object
		if err := json.Unmarshal(data, &back); err != nil || back.Memory != m {
			t.Errorf("%s became %v, %v", data, back.Memory, err)
		}
	}
	if err := json.Unmarshal([]byte(`{"memory":"lots"}`), &object{}); !errors.Is(err, ErrMemory) {
		t.Errorf("error %v, want ErrMemory", err)
	}
}

func FuzzParseMemory(f *testing.F) {
	for _, text := range []string{"4Gi", "50%", "1.5G", "-0", "18446744073709551615"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMemory(text)
		if err != nil {
			return
		}
		if m.IsZero() {
			t.Fatalf("%q is accepted as nothing", text)
		}
		if back, err := ParseMemory(m.String()); err != nil || back != m {
			t.Fatalf("%q is written as %q, which reads as %v, %v", text, m, back, err)
		}
	})
}

func TestAmounts(t *testing.T) {
	random := rand.New(rand.NewSource(3))
	some := func() Memory {
		switch random.Intn(5) {
		case 0:
			return Memory{}
		case 1:
			return Bytes(random.Uint64() >> random.Intn(40))
		}
		return PartOf(random.Uint64()>>random.Intn(60), max(1, random.Uint64()>>random.Intn(60)))
	}
	for range 20000 {
		a, b, size := some(), some(), random.Uint64()>>random.Intn(40)
		if part, ok := a.Part(); ok {
			got := a.Of(size)
			hi, lo := bits.Mul64(got, part.In)
			limitHi, limitLo := bits.Mul64(size, part.Of)
			if hi > limitHi || hi == limitHi && lo > limitLo || got%BlockBytes != 0 {
				t.Errorf("%+v of %d is %d", a, size, got)
			}
		}
		enough, comparable := a.AtLeast(b)
		_, part := b.Part()
		beyond := a.IsAll() && !part // bytes may be more than the GPU has
		if comparable && enough && !beyond && a.Of(size) < b.Of(size) {
			t.Errorf("%+v is at least %+v, and of %d bytes it is less", a, b, size)
		}
		if other, ok := b.AtLeast(a); ok != comparable || ok && !enough && !other {
			t.Errorf("%+v and %+v: neither is at least the other", a, b)
		}
	}
	if got := PartOf(1, 2).Of(16<<30) + PartOf(1, 2).Of(16<<30); got > 16<<30 {
		t.Error("two halves do not fit")
	}
}
