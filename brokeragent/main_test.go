package brokeragent_test

import (
	"testing"

	"portage/brokeragent/agenttest"
)

func TestMain(m *testing.M) { agenttest.Main(m) }
