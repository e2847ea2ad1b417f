package units

import "testing"

func TestRatesReadAsNetworksAreSold(t *testing.T) {
	for text, want := range map[string]ByteSize{"1Gbit": 125e6, "2.5Gbit": 312500000, "100Mbit/s": 12.5e6, "64kbit": 8000, "10MiB": 10 << 20, "10MiB/s": 10 << 20, "0": 0, "7": 7} {
		if got, err := ParseRate(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "fast", "-1Gbit", "NaNGbit", "1Gb", "1e30Tbit"} {
		if got, err := ParseRate(text); err == nil {
			t.Errorf("%q was taken for %d", text, got)
		}
	}
}
