graph [
  directed 1
  node [
    id 0
    label "FW.conv1"
  ]
  node [
    id 1
    label "BW.conv1"
    graphics [ x 1.5 y "2" ]
  ]
  node [
    id 2
    label "Comm.conv1.weight"
  ]
  node [
    id 3
    label "UPDATE_0"
  ]
  edge [
    source 0
    target 1
    weight 1
  ]
  edge [
    source 1
    target 2
  ]
  edge [
    source 2
    target 3
  ]
  edge [
    source 0
    target 3
  ]
]
