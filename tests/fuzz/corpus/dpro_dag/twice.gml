graph [ node [ id 0 label "a" ] node [ id 0 label "b" ] node [ id 1 label "a" ] node [ id 2 label "c" ]
edge [ source 1 target 0 ] edge [ source 2 target 1 ] edge [ source 0 target 2 ] edge [ source 9 target 0 ]
node [ label "late" id 3 ] edge [ target 3 source 3 ] ]
