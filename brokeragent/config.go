package brokeragent

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"

	"portage/brokeragent/native"
	"portage/brokeragent/native/seglog"
)

// Config is one agent's settings. Addresses to listen on may end in :0 for a free port.
type Config struct {
	BrokerID         string
	NodeID           int32
	Rack             string
	KafkaListen      string
	KafkaAdvertise   string // host:port for clients; empty: the listener's own
	ControlListen    string
	ControlAdvertise string // URL for workers and other agents; empty: the listener's own
	Data             string
	Token            string // the fleet's secret, shared by workers and agents
	AllowUnfenced    bool   // accept orders without controller epoch and token, and count them
	LimitInPerSec    float64
	LimitOutPerSec   float64
	MaxTransfers     int // copies at once, per direction; 0 switches copies off
	// DiskFloorBytes stays free whatever is copied, so that staging never starves the partitions this broker owns; 64 MiB
	// when 0.
	DiskFloorBytes int64
	Version        string
	Log            seglog.Options
	Limits         native.Limits
	Logger         *slog.Logger
}

var brokerID = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,64}$`)

// Validate reports everything that is wrong with the settings, one sentence each.
func (c *Config) Validate() error {
	var all []error
	if !brokerID.MatchString(c.BrokerID) {
		all = append(all, fmt.Errorf("--id %q: a broker id is 1 to 64 of a-z A-Z 0-9 . _ -", c.BrokerID))
	}
	if c.NodeID < 0 {
		all = append(all, fmt.Errorf("--node-id %d: a Kafka node id is 0 or more", c.NodeID))
	}
	if c.Data == "" {
		all = append(all, errors.New("--data is missing: name the folder that holds this broker's partitions"))
	}
	if c.Token == "" {
		all = append(all, errors.New("--token-file is missing: agents and workers of a fleet share one secret"))
	}
	for _, l := range []struct{ flag, address, advertise, advertiseFlag string }{
		{"--kafka-listen", c.KafkaListen, c.KafkaAdvertise, "--kafka-advertise"},
		{"--control-listen", c.ControlListen, c.ControlAdvertise, "--control-advertise"},
	} {
		host, _, err := net.SplitHostPort(l.address)
		if err != nil {
			all = append(all, fmt.Errorf("%s %q: give host:port", l.flag, l.address))
		} else if ip := net.ParseIP(host); l.advertise == "" && (host == "" || (ip != nil && ip.IsUnspecified())) {
			all = append(all, fmt.Errorf("%s is missing: %s listens on every address, so say which one others reach", l.advertiseFlag, l.flag))
		}
	}
	if c.KafkaAdvertise != "" {
		if host, _, err := net.SplitHostPort(c.KafkaAdvertise); err != nil || host == "" {
			all = append(all, fmt.Errorf("--kafka-advertise %q: give the host:port that clients reach", c.KafkaAdvertise))
		}
	}
	if c.ControlAdvertise != "" {
		if u, err := url.Parse(c.ControlAdvertise); err != nil || u.Host == "" {
			all = append(all, fmt.Errorf("--control-advertise %q: give the URL that workers reach, as http://host:port", c.ControlAdvertise))
		}
	}
	if c.LimitInPerSec < 0 || c.LimitOutPerSec < 0 {
		all = append(all, errors.New("--limit-in and --limit-out can not be negative; 0 lifts the limit"))
	}
	if c.MaxTransfers < 0 {
		all = append(all, errors.New("--max-transfers can not be negative; 0 switches copies off"))
	}
	return errors.Join(all...)
}
