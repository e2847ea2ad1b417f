package planner

import "fmt"

// Goal is one thing that is balanced over brokers. All goals are soft: what a hard rule forbids no goal asks for.
type Goal uint8

// The goals, by default in this priority (M40).
const (
	NWIn           Goal = iota // bytes a second produced to the partitions a broker owns
	NWOut                      // bytes a second consumed from them
	Disk                       // bytes they hold on disk
	PartitionCount             // how many they are; always trusted, never sampled (M39)

	numGoals     = 4
	numResources = 3 // the goals that are sampled: all but PartitionCount
)

var goalNames = [numGoals]string{"NW_IN", "NW_OUT", "DISK", "PARTITION_COUNT"}

// String is the goal's name in settings, plans and metrics.
func (g Goal) String() string { return goalNames[g] }

// MarshalText writes the name.
func (g Goal) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText reads a name.
func (g *Goal) UnmarshalText(text []byte) error {
	for i, name := range goalNames {
		if name == string(text) {
			*g = Goal(i)
			return nil
		}
	}
	return fmt.Errorf("there is no goal %q; the goals are %s, %s, %s and %s", text, goalNames[0], goalNames[1], goalNames[2], goalNames[3])
}
