package worker

import (
	"testing"

	"portage/brokeragent/agenttest"
)

func TestMain(m *testing.M) { agenttest.Main(m) }
